#include "data/recipe.h"

#include <curl/curl.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <zip.h>

#include <memory>

#include "base/error.h"
#include "base/options.h"

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

constexpr const char* kStopped = "stopped";

// "", kStopped, or why it failed.
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
  if (code == CURLE_ABORTED_BY_CALLBACK) return kStopped;
  if (code != CURLE_OK) return *why ? why : curl_easy_strerror(code);
  out.close();
  return "";
}

struct ZipMember {
  std::unique_ptr<zip_t, void (*)(zip_t*)> zip;
  std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file;
  uint64_t size;
};

ZipMember open_member(const fs::path& archive, const std::string& member) {
  int code = 0;
  std::unique_ptr<zip_t, void (*)(zip_t*)> zip(zip_open(archive.c_str(), ZIP_RDONLY, &code), zip_discard);
  require(zip != nullptr, "{}: not a zip archive (libzip error {})", archive.string(), code);
  std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(zip_fopen(zip.get(), member.c_str(), 0), zip_fclose);
  zip_stat_t status{};
  require(file != nullptr && zip_stat(zip.get(), member.c_str(), 0, &status) == 0 && (status.valid & ZIP_STAT_SIZE),
          "{}: holds no {}", archive.string(), member);
  return {std::move(zip), std::move(file), status.size};
}

class ZippedText : public TextInput {
 public:
  ZippedText(const fs::path& archive, const std::string& member)
      : name_(fmt::format("{}, {}", archive.string(), member)), member_(open_member(archive, member)) {}
  size_t read(std::span<char> out) override {
    size_t done = 0;
    while (done < out.size()) {
      const auto n = zip_fread(member_.file.get(), out.data() + done, out.size() - done);
      require(n >= 0, "{}: is damaged", name_);
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    position_ += done;
    return done;
  }
  uint64_t raw_position() const override { return position_; }

 private:
  std::string name_;
  ZipMember member_;
  uint64_t position_ = 0;
};

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

fs::path fetch_recipe(const Recipe& recipe, const fs::path& dir, const DownloadProgress& progress) {
  make_directories(dir);
  fs::path archive = dir / fs::path(recipe.urls.front()).filename();
  if (!fs::exists(archive)) {
    fs::path part = archive;
    part += ".part";
    std::string why;
    for (const std::string& url : recipe.urls) {
      why = download(url, part, progress);
      if (why == kStopped) return {};
      if (why.empty()) break;
    }
    require(why.empty(), "cannot download {} ({}). Put {} (md5 {}) at {} and start again.", recipe.name, why,
            recipe.urls.front(), recipe.md5, archive.string());
    publish(part, archive);
  }
  const std::string md5 = md5_of(archive);
  require(md5 == recipe.md5, "{}: its md5 is {}, but {} has {}. Remove the file and start again.", archive.string(),
          md5, recipe.name, recipe.md5);
  return archive;
}

uint64_t zipped_size(const fs::path& archive, const std::string& member) { return open_member(archive, member).size; }

std::unique_ptr<TextInput> open_zipped(const fs::path& archive, const std::string& member) {
  return std::make_unique<ZippedText>(archive, member);
}

std::string md5_of(const fs::path& path) {
  const MappedFile file(path);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  require(EVP_Digest(file.bytes().data(), file.size(), digest.data(), &size, EVP_md5(), nullptr) == 1,
          "{}: libcrypto computes no MD5 here", path.string());
  return fmt::format("{:02x}", fmt::join(std::span(digest).first(size), ""));
}

}  // namespace longshot
