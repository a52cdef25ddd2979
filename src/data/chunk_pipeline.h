// Chunks read ahead on one thread, worked on by all, and handed over in order.
#pragma once
#include <exception>
#include <future>
#include <mutex>

#include "base/context.h"
#include "data/documents.h"

namespace longshot {

struct ChunkBatch {
  std::vector<Chunk> chunks;
  size_t count = 0;        // of chunks in use
  Documents::Place end;    // where the next batch starts
  uint64_t raw_bytes = 0;  // of the files, up to there
};

constexpr size_t kBatchBytes = 64 << 20;  // more only by the last chunk of a batch

// Chunks in a batch, at most.
inline size_t batch_size(int threads) { return static_cast<size_t>(threads) * 8; }

// work(chunk index, chunk, thread) for all chunks of a batch, `most` at most, on all threads, then after(batch) on this one;
// ends with the documents or when `after` returns false.
template <class Work, class After>
void for_each_batch(Context& context, Documents& documents, size_t most, Work&& work, After&& after) {
  const auto read = [&documents, most](ChunkBatch& batch) {
    batch.chunks.resize(most);
    batch.count = 0;
    size_t bytes = 0;
    while (batch.count < most && bytes < kBatchBytes && documents.next(batch.chunks[batch.count])) {
      bytes += batch.chunks[batch.count++].text.size();
    }
    batch.end = documents.place();
    batch.raw_bytes = documents.raw_bytes();
  };
  ChunkBatch batch, ahead;
  read(batch);
  while (batch.count > 0) {
    std::future<void> reading = std::async(std::launch::async, [&] { read(ahead); });
    std::exception_ptr failure;
    std::mutex mutex;
    context.tasks(static_cast<int64_t>(batch.count), [&](int64_t i, int thread) {
      try {
        work(static_cast<size_t>(i), batch.chunks[static_cast<size_t>(i)], thread);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    });
    if (failure) std::rethrow_exception(failure);
    if (!after(batch)) return;
    reading.get();
    std::swap(batch, ahead);
  }
}

}  // namespace longshot
