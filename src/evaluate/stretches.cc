#include "evaluate/stretches.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "model/inference.h"

namespace longshot {
namespace {

constexpr int kKeys = Transfers::kFirstTag + 1;
constexpr int64_t kFirstRequest = 8;  // tiles, where none is at hand

KeyRange tiles_in(const KeyRange& tokens) {
  if (tokens.empty()) return {};
  return {tokens.first / kKeyTile, (tokens.last + kKeyTile - 1) / kKeyTile};
}
int64_t count(const KeyRange& range) { return range.empty() ? 0 : range.last - range.first; }
KeyRange common(const KeyRange& a, const KeyRange& b) { return {std::max(a.first, b.first), std::min(a.last, b.last)}; }

template <class T>
std::string text_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}
// Floats from number `first` on.
void read_floats(const std::string& text, int64_t first, std::span<float> values) {
  std::memcpy(values.data(), text.data() + static_cast<size_t>(first) * sizeof(float), values.size_bytes());
}

}  // namespace

std::vector<KeyRange> stretches_of(int64_t tokens, int ranks) {
  constexpr int64_t kChunk = Inference::kChunkTokens;
  const int64_t chunks = (tokens + kChunk - 1) / kChunk;
  const auto begin = [&](int64_t r) { return std::min((r * chunks + ranks - 1) / ranks * kChunk, tokens); };
  std::vector<KeyRange> stretches;
  for (int r = 0; r < ranks; ++r) stretches.push_back({begin(r), begin(r + 1)});
  return stretches;
}

void HaloCount::add(const HaloCount& other) {
  ranks = std::max(ranks, other.ranks);
  keys = std::max(keys, other.keys);
  bytes += other.bytes;
}

void StretchSharing::begin(int64_t tokens) {
  stretches_ = stretches_of(tokens, ranks_.size());
  received_ = {.ranks = ranks_.size()};
}

void StretchSharing::run_without_tokens(int64_t layers) {
  KeyStore none;
  for (int64_t i = 0; i < layers; ++i) run({.store = none, .store_keys = {}, .attend = {}});
}

void StretchSharing::run(const Layer& layer) {
  stopped_ = false, done_ = 0;
  attempt([&] {
    for (int64_t pass = 0; pass < layer.passes; ++pass) layer.store_keys(pass);
  });
  begin_halos(layer.store, ranks_.gather(told_keys(layer.store)));
  while (true) {
    const std::vector<Report> reports = exchange_reports(done_ == layer.passes);
    const auto all = [&](bool Flags::*flag) {
      return std::ranges::all_of(reports, [&](const Report& r) { return r.flags.*flag; });
    };
    if (std::ranges::any_of(reports, [](const Report& r) { return r.flags.stopped; })) throw Stopped();
    if (all(&Flags::is_done)) return;
    bring_keys(layer.store, reports);
    // A stretch's first pass looks furthest beyond it: nobody goes on until all have what that needs.
    const int64_t most = all(&Flags::has_begun) ? layer.passes : std::min<int64_t>(layer.passes, 1);
    attempt([&] {
      while (done_ < most && note(layer, layer.attend(done_))) ++done_;
    });
  }
}

// A rank that was stopped goes on with the messages alone; the next report says so.
void StretchSharing::attempt(const std::function<void()>& work) {
  try {
    if (!stopped_) work();
  } catch (const Stopped&) {
    stopped_ = true;
  }
}

// Of every head the norms of its tiles; of rank 0 then every head's first tile.
std::string StretchSharing::told_keys(const KeyStore& store) const {
  std::vector<float> told;
  const KeyRange tiles = tiles_in(own());
  for (const KeyRing& ring : store.rings) {
    for (int64_t t = tiles.first; t < tiles.last; ++t) told.push_back(ring.norm_of(t));
  }
  std::vector<float> tile(static_cast<size_t>(floats_of_tile(store.head_dim)));
  for (const KeyRing& ring : store.rings) {
    if (!ranks_.is_root()) break;
    copy_tile(ring, store.head_dim, 0, tile.data());
    told.insert(told.end(), tile.begin(), tile.end());
  }
  return text_of(std::span<const float>(told));
}

void StretchSharing::begin_halos(KeyStore& store, const std::vector<std::string>& told) {
  halos_.resize(store.rings.size());
  from_.resize(halos_.size());
  used_.resize(halos_.size());
  for (size_t h = 0; h < halos_.size(); ++h) {
    KeyHalo& halo = halos_[h];
    halo.end = halo.from = tiles_in(own()).first;
    halo.key_floats = key_floats_of_tile(store.head_dim);
    halo.tile_floats = floats_of_tile(store.head_dim);
    halo.near.clear();
    store.rings[h].halo = halo.end > 0 ? &halo : nullptr;
    if (halo.end > 0) fill_norms(static_cast<int64_t>(h), told);
    // The first guess is what the layer before has used.
    from_[h] = std::max(halo.end - std::exchange(used_[h], 0), std::min<int64_t>(halo.end, 1));
  }
}

// And the first tile.
void StretchSharing::fill_norms(int64_t head, const std::vector<std::string>& told) {
  KeyHalo& halo = halos_[static_cast<size_t>(head)];
  halo.norms.resize(static_cast<size_t>(halo.end));
  halo.first.resize(static_cast<size_t>(halo.tile_floats));
  for (size_t r = 0; std::cmp_less(r, ranks_.rank()); ++r) {
    const KeyRange theirs = tiles_in(stretches_[r]);
    const auto place = static_cast<size_t>(theirs.first), tiles = static_cast<size_t>(count(theirs));
    read_floats(told[r], head * count(theirs), std::span(halo.norms).subspan(place, tiles));
  }
  const int64_t norms_of_root = std::ssize(halos_) * count(tiles_in(stretches_[0]));
  read_floats(told[0], norms_of_root + head * halo.tile_floats, halo.first);
}

// Takes in what a pass has visited. False where it lacked keys: more of them are wanted then.
bool StretchSharing::note(const Layer& layer, std::span<const VisitedTiles> visited) {
  const int64_t tiles = std::ssize(visited) / layer.heads, group = layer.heads / std::ssize(halos_);
  for (int64_t i = 0; i < std::ssize(visited); ++i) {
    const VisitedTiles& v = visited[static_cast<size_t>(i)];
    const auto head = static_cast<size_t>(i / tiles / group);
    const KeyHalo& halo = halos_[head];
    if (v.missing) {
      const int64_t twice = halo.end - std::max(2 * (halo.end - halo.from), kFirstRequest);
      from_[head] = std::min(from_[head], std::max<int64_t>({std::min<int64_t>(v.begin, twice), v.first, 1}));
    } else if (v.begin < v.end) {
      used_[head] = std::max(used_[head], halo.end - v.begin);
    }
  }
  return !lacks_keys(visited);
}

std::vector<StretchSharing::Report> StretchSharing::exchange_reports(bool is_done) {
  const bool needs_none = tiles_in(own()).first == 0;
  const Flags flags{.stopped = stopped_, .has_begun = needs_none || done_ > 0, .is_done = is_done};
  std::vector<KeyRange> wanted;
  for (size_t h = 0; h < halos_.size(); ++h) wanted.push_back({from_[h], halos_[h].from});
  std::vector<Report> reports;
  for (const std::string& text :
       ranks_.gather(text_of(std::span(&flags, 1)) + text_of(std::span<const KeyRange>(wanted)))) {
    Report report;
    std::memcpy(&report.flags, text.data(), sizeof flags);
    report.wanted.resize((text.size() - sizeof flags) / sizeof(KeyRange));
    if (!report.wanted.empty())
      std::memcpy(report.wanted.data(), text.data() + sizeof flags, text.size() - sizeof flags);
    reports.push_back(std::move(report));
  }
  return reports;
}

void StretchSharing::bring_keys(const KeyStore& store, const std::vector<Report>& reports) {
  if (ranks_.is_alone()) return;
  const auto transfers = ranks_.transfers();
  receive_keys(reports[static_cast<size_t>(ranks_.rank())].wanted, *transfers);
  const std::vector<std::vector<float>> under_way = send_keys(store, reports, *transfers);
  ranks_.wait(*transfers);
}

// Tiles travel as a halo has them, the nearest first.
void StretchSharing::receive_keys(const std::vector<KeyRange>& wanted, Transfers& transfers) {
  for (size_t h = 0; h < wanted.size(); ++h) {
    if (wanted[h].empty()) continue;
    KeyHalo& halo = halos_[h];
    halo.from = wanted[h].first;
    const auto floats = static_cast<size_t>((halo.end - halo.from) * halo.tile_floats);
    halo.near.reserve(floats);
    halo.near.resize(floats);
    for (int r = 0; r < ranks_.rank(); ++r) {
      const KeyRange theirs = common(wanted[h], tiles_in(stretches_[static_cast<size_t>(r)]));
      if (theirs.empty()) continue;
      const auto place = static_cast<size_t>((halo.end - theirs.last) * halo.tile_floats);
      const auto size = static_cast<size_t>(count(theirs) * halo.tile_floats);
      transfers.receive(r, kKeys, std::as_writable_bytes(std::span(halo.near).subspan(place, size)));
      received_.bytes += static_cast<int64_t>(size * sizeof(float));
    }
    received_.keys = std::max(received_.keys, (halo.end - halo.from) * kKeyTile);
  }
}

std::vector<std::vector<float>> StretchSharing::send_keys(const KeyStore& store, const std::vector<Report>& reports,
                                                          Transfers& transfers) const {
  std::vector<std::vector<float>> packed;
  const int64_t floats = floats_of_tile(store.head_dim);
  for (int r = ranks_.rank() + 1; r < ranks_.size(); ++r) {
    const std::vector<KeyRange>& wanted = reports[static_cast<size_t>(r)].wanted;
    for (size_t h = 0; h < wanted.size(); ++h) {
      const KeyRange ours = common(wanted[h], tiles_in(own()));
      if (ours.empty()) continue;
      std::vector<float>& tiles = packed.emplace_back(static_cast<size_t>(count(ours) * floats));
      for (int64_t t = ours.first; t < ours.last; ++t)
        copy_tile(store.rings[h], store.head_dim, t, tiles.data() + (ours.last - 1 - t) * floats);
      transfers.send(r, kKeys, std::as_bytes(std::span(tiles)));
    }
  }
  return packed;
}

}  // namespace longshot
