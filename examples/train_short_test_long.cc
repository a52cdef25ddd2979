// Trains a small ALiBi model on sequences of 32 tokens, then scores a text far longer than that.
//   longshot prepare book.txt --tokenizer byte --out book
//   train_short_test_long book run
#include <longshot.h>

#include <cstdio>
#include <numeric>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: train_short_test_long TOKEN_SET RUN\n");
    return 2;
  }
  try {
    longshot::TrainRequest request{.data = argv[1], .out = argv[2]};
    request.model.position = "alibi";
    request.model.layers = 2, request.model.dim = 64, request.model.heads = 4;
    request.model.length = 32;
    request.train.steps = 30, request.train.batch_tokens = 1024;
    longshot::Context context;
    longshot::train(context, request);
    longshot::Model model = longshot::Model::load(argv[2]);
    std::string text;
    while (text.size() < 1000) text += "the quick brown fox jumps over the lazy dog. ";
    const std::vector<float> losses = model.score(model.encode(text));
    const double mean = std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
    std::printf("trained at %ld, scored %zu tokens: %.3f nats each\n", static_cast<long>(model.train_length()),
                losses.size(), mean);
  } catch (const longshot::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
