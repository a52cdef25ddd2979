// One window over several ranks. Each holds a stretch of its tokens; of the keys before them it gets those that attention
// visits: a halo, whose length the stop rule bounds where the bias falls with the distance (kernels/attention.h).
//
// In every layer all ranks store their keys and tell each other the norms of their tiles, by which attention may stop, and the
// first tile of all, which it judges on its own. Then attention runs on what is at hand. A rank that lacks keys asks their
// owners for twice as many as it has and makes that pass again: what is visited does not depend on who holds it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "model/key_sharing.h"

namespace longshot {

// Tokens [first, last) of a window for each rank: whole chunks of Inference::kChunkTokens, as evenly as they go. The last
// ranks have none where chunks are fewer than ranks.
std::vector<KeyRange> stretches_of(int64_t tokens, int ranks);

// What came from other ranks.
struct HaloCount {
  int ranks = 1;      // that share a window
  int64_t keys = 0;   // the most of one head in one layer
  int64_t bytes = 0;  // keys and values, of all heads and layers

  void add(const HaloCount& other);
};

class StretchSharing : public KeySharing {
 public:
  explicit StretchSharing(Communicator& ranks) : ranks_(ranks) {}
  // Before each window.
  void begin(int64_t tokens);
  // This rank's part of it.
  const KeyRange& own() const { return stretches_[static_cast<size_t>(ranks_.rank())]; }
  void run(const Layer& layer) override;
  // All layers, where its part is empty.
  void run_without_tokens(int64_t layers);
  // Since begin().
  const HaloCount& received() const { return received_; }

 private:
  // What a rank tells the others before they go on.
  struct Flags {
    bool stopped = false;
    bool has_begun = false;  // a pass is done, or none needs keys of others
    bool is_done = false;
  };
  struct Report {
    Flags flags;
    std::vector<KeyRange> wanted;  // [key heads] tiles, or none
  };

  void attempt(const std::function<void()>& work);
  std::string told_keys(const KeyStore& store) const;
  void begin_halos(KeyStore& store, const std::vector<std::string>& told);
  void fill_norms(int64_t head, const std::vector<std::string>& told);
  bool note(const Layer& layer, std::span<const VisitedTiles> visited);
  std::vector<Report> exchange_reports(bool is_done);
  void bring_keys(const KeyStore& store, const std::vector<Report>& reports);
  void receive_keys(const std::vector<KeyRange>& wanted, Transfers& transfers);
  // The packed tiles, which must stay until the transfers are done.
  std::vector<std::vector<float>> send_keys(const KeyStore& store, const std::vector<Report>& reports,
                                            Transfers& transfers) const;

  Communicator& ranks_;
  std::vector<KeyRange> stretches_;  // [ranks]
  std::vector<KeyHalo> halos_;       // [key heads], or none
  std::vector<int64_t> from_;        // [key heads] tiles from there on are wanted
  std::vector<int64_t> used_;        // [key heads] tiles of the halo that the layer has visited
  bool stopped_ = false;
  int64_t done_ = 0;  // passes of the layer
  HaloCount received_;
};

}  // namespace longshot
