// `longshot serve` as a user meets it.
#include <fstream>

#include "cli/support.h"
#include "serve/client.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ServeCommandTest : public TrainedRunTest {
 protected:
  std::string log() const { return fs::exists(dir_ / "log") ? read_text(dir_ / "log") : ""; }

  void serve(const std::string& arguments) {
    const std::string command =
        fmt::format("exec {} serve {} --port 0 2> {}", LONGSHOT_PROGRAM, arguments, (dir_ / "log").string());
    fs::remove(dir_ / "log");
    child_ = ::fork();
    if (child_ == 0) {
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      std::_Exit(127);
    }
    EXPECT_TRUE(wait_until([&] { return log().find("Ctrl-C ends\n") != std::string::npos; })) << log();
    const std::string text = log();
    const size_t at = text.find("http://127.0.0.1:");
    port_ = at == std::string::npos ? 0 : std::stoi(text.substr(at + 17));
  }
  int ended(int signal) {
    ::kill(child_, signal);
    return end_of(std::exchange(child_, 0));
  }
  void TearDown() override {
    if (child_ > 0) ended(SIGKILL);
  }
  Answer get(const std::string& path) const {
    Client client(port_);
    client.send(get_text(path));
    return client.answer();
  }

  int port_ = 0;
  pid_t child_ = 0;
};

TEST_F(ServeCommandTest, ServesUntilItIsInterrupted) {
  for (const int signal : {SIGINT, SIGTERM}) {
    serve(run() + " --threads 1 --max-length 300000 --slots 1");
    ASSERT_TRUE(wait_until([&] { return get("/health").status == 200; }));
    EXPECT_THAT(log(), HasSubstr("is ready: alibi, trained at length 16"));
    EXPECT_EQ(get("/v1/models").json()["data"][0]["id"], "run");
    Client busy(port_);
    busy.send(post_text("/v1/completions", R"({"prompt":"a","max_tokens":200000,"stream":true})"));
    busy.take_until("data: ");
    const int status = ended(signal);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_TRUE(busy.closes(5));
  }
}

TEST_F(ServeCommandTest, RunsAloneNeedNoModel) {
  serve("--runs " + (dir_ / "").string());
  ASSERT_TRUE(wait_until([&] { return get("/runs").body.find("3 of 3") != std::string::npos; }));
  EXPECT_EQ(get("/health").json()["status"], "no model");
  EXPECT_EQ(get("/v1/models").json()["data"].size(), 0u);
  EXPECT_EQ(ended(SIGINT), 0);
}

TEST_F(ServeCommandTest, WhatCannotBeServedIsSaid) {
  const auto said = [&](const std::string& arguments, int code, const std::string& words) {
    const Outcome o = longshot_run(dir_, "serve " + arguments);
    EXPECT_EQ(o.code, code) << arguments;
    EXPECT_THAT(o.err, HasSubstr(words)) << arguments;
  };
  said("", 2, "needs a RUN to serve or --runs");
  said(run() + " --port 70000", 2, "--port: 70000 is not between 0 and 65535");
  said(run() + " --slots 0", 2, "--slots");
  said(run() + " --max-length 1", 2, "--max-length");
  said(run() + " --host nowhere.invalid --port 0", 1, "--host nowhere.invalid");
  said(run() + " --api-key-file " + (dir_ / "none").string() + " --port 0", 1, "none");
  said(run() + " --runs " + (dir_ / "none").string() + " --port 0", 2, "--runs");
  said((dir_ / "nowhere").string() + " --port 0", 1, "nowhere");
  serve(run());
  said(run() + " --port " + std::to_string(port_), 1, "Is another program there?");
  EXPECT_EQ(ended(SIGTERM), 0);
}

TEST_F(ServeCommandTest, HelpNamesEveryLimit) {
  EXPECT_THAT(longshot_run(dir_, "serve --help").out,
              AllOf(HasSubstr("usage: longshot serve [RUN] [options]"), HasSubstr("--max-body"), HasSubstr("--slots"),
                    HasSubstr("--api-key-file"), HasSubstr("--threads"), HasSubstr("127.0.0.1")));
}

}  // namespace
}  // namespace longshot
