// tests/support/ranks/node_ranks.cpp -- see node_ranks.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks/node_ranks.h"

#include <deque>
#include <map>
#include <mutex>
#include <random>

namespace seqtile::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

/// The messages under way.
class Post {
 public:
  explicit Post(NodeOptions options) : options_(std::move(options)), random_(options_.seed) {}

  void send(int from, int to, Bytes bytes) {
    if (options_.is_cut_off && (options_.is_cut_off(from) || options_.is_cut_off(to))) return;
    const std::lock_guard lock(mutex_);
    const auto most = static_cast<uint32_t>(options_.most_delay_us) + 1;
    ways_[to][from].push_back({Clock::now() + std::chrono::microseconds(random_() % most), std::move(bytes)});
  }

  std::optional<fabric::NodeMessage> receive(int to) {
    const std::lock_guard lock(mutex_);
    for (auto& [from, way] : ways_[to]) {
      if (way.empty() || way.front().due > Clock::now()) continue;
      fabric::NodeMessage message{from, std::move(way.front().bytes)};
      way.pop_front();
      return message;
    }
    return std::nullopt;
  }

 private:
  struct Letter {
    Clock::time_point due;
    Bytes bytes;
  };
  const NodeOptions options_;
  std::mutex mutex_;
  std::mt19937 random_;
  std::map<int, std::map<int, std::deque<Letter>>> ways_;  ///< queues by receiver and sender
};

class PostLink final : public fabric::NodeLink {
 public:
  PostLink(std::shared_ptr<Post> post, int rank) : post_(std::move(post)), rank_(rank) {}
  void send(int to, Bytes bytes) override { post_->send(rank_, to, std::move(bytes)); }
  std::optional<fabric::NodeMessage> receive() override { return post_->receive(rank_); }

 private:
  std::shared_ptr<Post> post_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Fabric>> make_node_ranks(int world_size, const NodeOptions& options) {
  std::vector<int> node_of;
  std::vector<std::vector<int>> ranks_of(static_cast<size_t>(options.num_nodes));
  for (int rank = 0; rank < world_size; ++rank) {
    node_of.push_back(options.is_around ? rank % options.num_nodes : rank * options.num_nodes / world_size);
    ranks_of[static_cast<size_t>(node_of.back())].push_back(rank);
  }
  const auto post = std::make_shared<Post>(options);
  std::vector<std::unique_ptr<Fabric>> fabrics(static_cast<size_t>(world_size));
  for (const std::vector<int>& ranks : ranks_of) {
    if (ranks.empty()) continue;
    auto local = make_thread_fabric(static_cast<int>(ranks.size()));
    for (size_t i = 0; i < ranks.size(); ++i)
      fabrics[static_cast<size_t>(ranks[i])] =
          fabric::make_node_fabric(std::move(local[i]), std::make_unique<PostLink>(post, ranks[i]), ranks[i], node_of,
                                   options.heartbeat_timeout);
  }
  return fabrics;
}

}  // namespace seqtile::testing
