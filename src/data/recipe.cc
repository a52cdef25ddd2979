#include "data/recipe.h"

#include <curl/curl.h>
#include <fmt/ranges.h>
#include <zip.h>

#include <memory>

#include "base/error.h"
#include "base/options.h"
#include "data/md5.h"

namespace longshot {
namespace {

struct Transfer {
  OutputFile* out;
  const DownloadProgress* progress;
  std::string error;  // of ours, thrown once curl has returned
};

size_t on_data(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  try {
    transfer.out->write(data, size * count);
    return size * count;
  } catch (const Error& e) {
    transfer.error = e.what();
    return 0;
  }
}

int on_progress(void* user, curl_off_t total, curl_off_t now, curl_off_t, curl_off_t) {
  const auto& transfer = *static_cast<Transfer*>(user);
  return (*transfer.progress)(static_cast<uint64_t>(now), static_cast<uint64_t>(total)) ? 0 : 1;
}

// "" or why it failed.
std::string download(const std::string& url, const fs::path& path, const DownloadProgress& progress) {
  OutputFile out(path);
  Transfer transfer{&out, &progress, ""};
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  require(curl != nullptr, "libcurl: cannot start");
  char why[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT, 15L);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_LIMIT, 100L);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_TIME, 60L);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, why);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, on_data);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl.get(), CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFODATA, &transfer);
  const CURLcode code = curl_easy_perform(curl.get());
  require(transfer.error.empty(), "{}", transfer.error);
  require(code != CURLE_ABORTED_BY_CALLBACK, "the download was stopped");
  if (code != CURLE_OK) return *why ? why : curl_easy_strerror(code);
  out.close();
  return "";
}

std::string md5_of(const fs::path& path) {
  const MappedFile file(path);
  Md5 md5;
  md5.add(file.text());
  return md5.hex();
}

void unpack(const fs::path& archive, const std::string& member, const fs::path& to) {
  int code = 0;
  const std::unique_ptr<zip_t, void (*)(zip_t*)> zip(zip_open(archive.c_str(), ZIP_RDONLY, &code), zip_discard);
  require(zip != nullptr, "{}: not a zip archive (libzip error {})", archive.string(), code);
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(zip_fopen(zip.get(), member.c_str(), 0), zip_fclose);
  require(file != nullptr, "{}: holds no {}", archive.string(), member);
  OutputFile out(to);
  std::vector<char> block(1 << 20);
  zip_int64_t n = 0;
  while ((n = zip_fread(file.get(), block.data(), block.size())) > 0) out.write(block.data(), static_cast<size_t>(n));
  require(n == 0, "{}: {} is damaged", archive.string(), member);
  out.close();
}

Recipe wikitext(const std::string& name, const std::string& md5) {
  const std::string zip = name + "-v1.zip";
  return {
      .name = name,
      .urls = {"https://wikitext.smerity.com/" + zip, "https://s3.amazonaws.com/research.metamind.io/wikitext/" + zip},
      .md5 = md5,
      .members = {name + "/wiki.train.tokens", name + "/wiki.valid.tokens", name + "/wiki.test.tokens"}};
}

}  // namespace

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all{wikitext("wikitext-103", "9ddaacaf6af0710eda8c456decff7832"),
                                       wikitext("wikitext-2", "542ccefacc6c27f945fb54453812b3cd")};
  return all;
}

const Recipe& find_recipe(const std::string& name) {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  fail_usage("--recipe {}: there is {}.{}", name, fmt::join(names, " and "), did_you_mean(name, names));
}

std::array<fs::path, 3> fetch_recipe(const Recipe& recipe, const fs::path& dir, const DownloadProgress& progress) {
  make_directories(dir);
  const fs::path archive = dir / fs::path(recipe.urls.front()).filename();
  if (!fs::exists(archive)) {
    fs::path part = archive;
    part += ".part";
    std::string why;
    for (const std::string& url : recipe.urls) {
      why = download(url, part, progress);
      if (why.empty()) break;
    }
    require(why.empty(), "cannot download {} ({}). Put {} (md5 {}) at {} and start again.", recipe.name, why,
            recipe.urls.front(), recipe.md5, archive.string());
    publish(part, archive);
  }
  const std::string md5 = md5_of(archive);
  require(md5 == recipe.md5, "{}: its md5 is {}, but {} has {}. Remove the file and start again.", archive.string(),
          md5, recipe.name, recipe.md5);
  std::array<fs::path, 3> files;
  for (size_t s = 0; s < files.size(); ++s) {
    files[s] = dir / fs::path(recipe.members[s]).filename();
    if (!fs::exists(files[s])) {
      fs::path part = files[s];
      part += ".part";
      unpack(archive, recipe.members[s], part);
      publish(part, files[s]);
    }
  }
  return files;
}

}  // namespace longshot
