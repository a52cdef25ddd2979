// Text that continues a prompt, shown as it is made.
//   complete RUN "In the beginning"
#include <longshot.h>

#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::cerr << "usage: complete RUN PROMPT\n";
    return 2;
  }
  longshot::Model model = longshot::Model::load(argv[1]);
  longshot::GenerationConfig config;
  config.max_tokens = 100;
  longshot::GenerationCallbacks callbacks;
  callbacks.on_text = [](int64_t, const std::string& text) { std::cout << text << std::flush; };
  std::cout << argv[2];
  model.generate(model.encode(argv[2]), config, callbacks);
  std::cout << '\n';
} catch (const longshot::Error& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
