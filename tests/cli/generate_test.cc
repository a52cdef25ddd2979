// `longshot generate` and `longshot score` as a user meets them.
#include <nlohmann/json.hpp>

#include "cli/support.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Generate = TrainedRunTest;

TEST_F(Generate, ContinuesAPromptAndSaysWhatItDid) {
  const Outcome o = longshot_run(dir_, "generate " + run() + " --prompt 'The river' --max-tokens 60 --threads 1");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(o.out.starts_with("The river"));
  EXPECT_GT(o.out.size(), 40u);
  EXPECT_THAT(o.err, AllOf(HasSubstr("9 tokens of prompt behind '\\n'"), HasSubstr("4.4 times the training length 16"),
                           HasSubstr("tokens/s"), HasSubstr("ended by: length")));
  EXPECT_EQ(longshot_run(dir_, "generate " + run() + " --prompt 'The river' --max-tokens 60 --threads 1").out, o.out);
  EXPECT_NE(longshot_run(dir_, "generate " + run() + " --prompt 'The river' --max-tokens 60 --threads 1 --seed 2").out,
            o.out);
}

TEST_F(Generate, WeightsInFewerBits) {
  const auto text = [&](const std::string& options) {
    const Outcome o =
        longshot_run(dir_, "generate " + run() + " --prompt 'The' --max-tokens 20 --threads 1 " + options);
    EXPECT_EQ(o.code, 0) << o.err;
    return o;
  };
  EXPECT_EQ(text("--weights f32").out, text("").out);
  EXPECT_THAT(text("--weights f32").err, testing::Not(HasSubstr("weights in")));
  for (const std::string type : {"bf16", "int8"})
    EXPECT_THAT(text("--weights " + type).err, HasSubstr("weights in " + type));
  EXPECT_THAT(text("--precision bf16").err, HasSubstr("weights in bf16"));
  EXPECT_THAT(text("--precision bf16 --weights f32").err, testing::Not(HasSubstr("weights in")));
  const Outcome o = longshot_run(dir_, "generate " + run() + " --prompt 'The' --weights int4");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("--weights"), HasSubstr("int8")));
  std::ofstream(dir_ / "text.txt") << "The river runs to the sea";
  const Outcome score =
      longshot_run(dir_, "score " + run() + " " + (dir_ / "text.txt").string() + " --weights int8 --json --threads 1");
  EXPECT_EQ(score.code, 0) << score.err;
  EXPECT_EQ(Json::parse(score.out)["tokens"], 25);
  const Outcome eval =
      longshot_run(dir_, "eval " + run() + " --data " + (dir_ / "data").string() +
                             " --lengths 16 --weights int8 --threads 1 --json " + (dir_ / "eval.json").string());
  EXPECT_EQ(eval.code, 0) << eval.err;
  EXPECT_THAT(read_text(dir_ / "eval.json"), HasSubstr("int8 weights"));
}

TEST_F(Generate, PromptsFromFilesAndPipes) {
  std::ofstream(dir_ / "prompt.txt") << "The sea";
  const std::string rest = " --max-tokens 9 --temperature 0 --threads 1";
  const Outcome file =
      longshot_run(dir_, "generate " + run() + " --prompt-file " + (dir_ / "prompt.txt").string() + rest);
  const Outcome pipe = shell(dir_, fmt::format("printf 'The sea' | {} generate {}{}", LONGSHOT_PROGRAM, run(), rest));
  EXPECT_EQ(file.code, 0) << file.err;
  EXPECT_EQ(pipe.out, file.out);
  EXPECT_TRUE(file.out.starts_with("The sea"));
}

TEST_F(Generate, JsonHoldsEverySample) {
  const Outcome o = longshot_run(
      dir_, "generate " + run() + " --prompt 'The \xC3\xA9' --max-tokens 12 --samples 3 --json --threads 1");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json json = Json::parse(o.out);
  ASSERT_EQ(json["samples"].size(), 3u);
  for (const Json& s : json["samples"]) {
    EXPECT_EQ(s["ids"].size(), 12u);
    EXPECT_EQ(s["log_probabilities"].size(), 12u);
    EXPECT_EQ(s["ended_by"], "length");
  }
  EXPECT_EQ(json["prompt_tokens"], 6);
}

TEST_F(Generate, WrongRequestsAreRefused) {
  const auto refused = [&](const std::string& more, const std::string& message) {
    const Outcome o = longshot_run(dir_, "generate " + run() + " --prompt x --threads 1 " + more);
    EXPECT_EQ(o.code, 2) << more;
    EXPECT_THAT(o.err, HasSubstr(message)) << more;
  };
  refused("--temperature=-1", "--temperature");
  refused("--samples 0", "--samples");
  refused("--max-tokens 9999999999", "--max-tokens");
  refused("--prompt-file y", "one of them");
  refused("--top-q 1", "top-k");
  EXPECT_EQ(longshot_run(dir_, "generate " + (dir_ / "nowhere").string() + " --prompt x").code, 1);
}

TEST_F(Generate, StreamsWithoutEnd) {
  const std::string prompt = "generate " + run() + " --prompt 'The river' --max-tokens 60 --threads 1 ";
  const Outcome plain = longshot_run(dir_, prompt), stream = longshot_run(dir_, prompt + "--unbounded");
  ASSERT_EQ(stream.code, 0) << stream.err;
  EXPECT_EQ(stream.out, plain.out);
  EXPECT_THAT(stream.err, AllOf(HasSubstr("no key was dropped"), HasSubstr("is certified")));
  const Outcome json = longshot_run(dir_, prompt + "--unbounded --strict --json");
  ASSERT_EQ(json.code, 0) << json.err;
  ASSERT_EQ(std::ranges::count(json.out, '\n'), 61);
  const size_t last = json.out.rfind('\n', json.out.size() - 2);
  EXPECT_EQ(Json::parse(json.out.substr(last))["unbounded"]["approximation"], false);
  EXPECT_EQ(longshot_run(dir_, prompt + "--unbounded --samples 2").code, 2);
  EXPECT_EQ(longshot_run(dir_, prompt + "--unbounded --window 8").code, 2);
  EXPECT_EQ(longshot_run(dir_, prompt + "--unbounded --attention-epsilon 0").code, 2);
  EXPECT_EQ(longshot_run(dir_, prompt + "--alibi-scaling linear --alibi-scaling-factor 0").code, 2);
  EXPECT_NE(longshot_run(dir_, prompt + "--alibi-scaling linear --alibi-scaling-factor 64").out, plain.out);

  std::ofstream(dir_ / "long.txt") << small_text(70000);
  const std::string score = fmt::format("score {} {} --threads 1 ", run(), (dir_ / "long.txt").string());
  const Outcome whole = longshot_run(dir_, score + "--summary"),
                parts = longshot_run(dir_, score + "--summary --unbounded");
  ASSERT_EQ(parts.code, 0) << parts.err;
  EXPECT_THAT(parts.out, AllOf(HasSubstr("70000 tokens, 70000 bytes, in one stream"), HasSubstr("was left out")));
  const auto costs = [](const std::string& out) {
    return out.substr(out.find("loss"), out.find("bits per byte") - out.find("loss"));
  };
  EXPECT_EQ(costs(parts.out), costs(whole.out));
  const Outcome pipe = shell(dir_, fmt::format("cat {} | {} score {} - --unbounded --threads 1",
                                               (dir_ / "long.txt").string(), LONGSHOT_PROGRAM, run()));
  ASSERT_EQ(pipe.code, 0) << pipe.err;
  EXPECT_GT(std::ranges::count(pipe.out, '\n'), 70000);
  EXPECT_EQ(longshot_run(dir_, score + "--unbounded --html x.html").code, 2);
}

TEST_F(Generate, ScoreSaysWhatEveryTokenCosts) {
  std::ofstream(dir_ / "text.txt") << "The river <runs> to the sea, and the sea is not full.";
  const std::string file = (dir_ / "text.txt").string(), page = (dir_ / "page.html").string();
  const Outcome text = longshot_run(dir_, fmt::format("score {} {} --html {} --threads 1", run(), file, page));
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("53 tokens, 53 bytes"), HasSubstr("3.3 times the training length 16"),
                              HasSubstr("bits per byte"), HasSubstr("beyond training length")));
  const std::string html = read_text(page);
  EXPECT_THAT(html, AllOf(HasSubstr("&lt;"), HasSubstr("passes the training length, 16")));
  EXPECT_EQ(html.find("<runs"), std::string::npos);
  const Outcome json = longshot_run(dir_, fmt::format("score {} {} --json --threads 1", run(), file));
  const Json scored = Json::parse(json.out);
  ASSERT_EQ(scored["surprisal"].size(), 53u);
  double bits = 0;
  for (const Json& t : scored["surprisal"]) bits += t["bits"].get<double>();
  EXPECT_NEAR(bits / 53, scored["bits_per_byte"].get<double>(), 1e-6);
  std::ofstream(dir_ / "empty.txt");
  const Outcome empty = longshot_run(dir_, fmt::format("score {} {}", run(), (dir_ / "empty.txt").string()));
  EXPECT_EQ(empty.code, 1);
  EXPECT_THAT(empty.err, HasSubstr("no token"));
}

}  // namespace
}  // namespace longshot
