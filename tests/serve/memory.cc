// Ten thousand requests: the memory of the server does not grow.
#include <fstream>

#include "serve/support.h"

namespace longshot {
namespace {

class ServeMemory : public ServeTest {
 protected:
  // Bytes of this process, which is server and clients, that are in memory.
  static double resident_bytes() {
    double size = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> size >> resident;
    return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
  }

  // Requests of many kinds: whole, streamed, refused, given up, several at a time.
  void serve_many(uint64_t first, uint64_t count) const {
    std::atomic<uint64_t> next{first};
    const auto work = [&] {
      auto client = std::make_unique<Client>(port_);
      for (uint64_t i = 0; (i = next++) < first + count;) {
        Json body{{"prompt", small_text(i * 37 % 900)}, {"max_tokens", 1 + i % 9}, {"seed", i}, {"stream", i % 2 == 0}};
        if (i % 3 == 0) body["logprobs"] = 5;
        if (i % 11 == 0) body["max_tokens"] = "many";
        client->send(post_text("/v1/completions", body.dump()));
        if (i % 13 == 0) {
          client = std::make_unique<Client>(port_);
          continue;
        }
        ASSERT_EQ(client->answer().status, i % 11 == 0 ? 400 : 200);
        if (i % 17 == 0) get("/metrics");
      }
    };
    std::vector<std::thread> clients;
    for (int c = 0; c < 8; ++c) clients.emplace_back(work);
    for (std::thread& c : clients) c.join();
  }
};

TEST_F(ServeMemory, StaysFlatOverTenThousandRequests) {
  start();
  serve_many(0, 2000);  // whatever is taken once has been taken
  const double before = resident_bytes();
  serve_many(2000, 10'000);
  EXPECT_LT(resident_bytes() - before, 4 << 20);
  EXPECT_GE(metric("longshot_texts_total{ended=\"length\"}"), 9000);
}

}  // namespace
}  // namespace longshot
