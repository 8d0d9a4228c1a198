// jit/fabric/transport/node_fabric.cpp -- see node_fabric.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/transport/node_fabric.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "jit/abi/channel_block.h"
#include "jit/abi/proxy_queue_block.h"
#include "jit/fabric/core/agreement.h"
#include "jit/fabric/transport/proxy_thread.h"
#include "seqtile/error.h"

namespace seqtile::fabric {
namespace {

/// Stands for a remote rank's buffer. It begins as zeros; pages that are never written take no memory.
class SendBuffer {
 public:
  explicit SendBuffer(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED)
      throw Error(
          ErrorCode::out_of_resources,
          fmt::format(
              "no {} bytes for a send buffer, which stands for a remote rank's memory; lower the channels' capacity",
              bytes));
  }
  SendBuffer(SendBuffer&& other) noexcept : data_(std::exchange(other.data_, MAP_FAILED)), bytes_(other.bytes_) {}
  ~SendBuffer() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }

 private:
  void* data_;
  size_t bytes_;
};

class NodeMemory final : public SymmetricMemory {
 public:
  /// `addresses`: of all ranks; of remote ranks their send buffers'.
  NodeMemory(std::vector<uint64_t> addresses, int rank, size_t bytes, std::unique_ptr<SymmetricMemory> local,
             std::vector<SendBuffer> send_buffers, std::shared_ptr<ProxyThread> proxy, uint64_t number)
      : SymmetricMemory(std::move(addresses), bytes),
        local_(std::move(local)),
        send_buffers_(std::move(send_buffers)),
        proxy_thread_(std::move(proxy)),
        number_(number) {
    proxy_thread_->add_memory(number_, {data(rank), bytes});
  }
  ~NodeMemory() override { proxy_thread_->remove_memory(number_); }
  uint64_t number() const { return number_; }
  std::byte* data(int rank) const { return reinterpret_cast<std::byte*>(address(rank)); }

 private:
  std::unique_ptr<SymmetricMemory> local_;
  std::vector<SendBuffer> send_buffers_;
  std::shared_ptr<ProxyThread> proxy_thread_;
  uint64_t number_;
};

/// The send queue of one channel. Entries for different peers come in any order. Abort words have no entries: forward()
/// reads their send buffers.
class ChannelProxyQueue final : public ProxyQueue, private Source {
 public:
  ChannelProxyQueue(std::shared_ptr<ProxyThread> proxy, int world_size, const NodeMemory& staging,
                    const NodeMemory& flags, const NodeMemory& abort)
      : proxy_thread_(std::move(proxy)), staging_(staging), flags_(flags), abort_(abort) {
    for (const int rank : proxy_thread_->remote_ranks()) remote_ranks_ |= uint32_t{1} << rank;
    const size_t flags_of_rank = flags.bytes() / channel::kFlagBytes / static_cast<size_t>(world_size);
    entries_.resize(1 + std::max<size_t>(1, flags_of_rank * proxy_thread_->remote_ranks().size()));
    proxy_thread_->add_source(*this);
  }
  ~ChannelProxyQueue() override { proxy_thread_->remove_source(*this); }

  uint64_t address() const override { return reinterpret_cast<uint64_t>(entries_.data()); }
  int64_t num_entries() const override { return static_cast<int64_t>(entries_.size()) - 1; }
  uint32_t remote_ranks() const override { return remote_ranks_; }

 private:
  using Entry = std::array<int64_t, proxy_queue::num_entry_words>;

  static int64_t load(int64_t& word) { return std::atomic_ref<int64_t>(word).load(std::memory_order_acquire); }

  bool forward(ProxyThread& proxy) override {
    const int64_t first = num_sent_;
    while (true) {
      Entry& entry = entries_[1 + static_cast<size_t>(num_sent_ % num_entries())];
      if (load(entry[proxy_queue::ready]) != num_sent_ + 1) break;
      ++num_sent_;
      const auto peer = static_cast<int>(entry[proxy_queue::peer]);
      proxy.deliver(
          peer,
          {staging_.number(), entry[proxy_queue::data_offset], entry[proxy_queue::rows], entry[proxy_queue::row_bytes],
           entry[proxy_queue::pitch], flags_.number(), entry[proxy_queue::flag_offset], entry[proxy_queue::flag]},
          staging_.data(peer) + entry[proxy_queue::data_offset]);
    }
    return tell_abort(proxy) || num_sent_ > first;
  }

  bool tell_abort(ProxyThread& proxy) {
    const uint32_t before = told_;
    for (const int rank : proxy.remote_ranks()) {
      const int64_t word = load(*reinterpret_cast<int64_t*>(abort_.data(rank)));
      if (word == 0 || (told_ >> rank & 1) != 0) continue;
      told_ |= uint32_t{1} << rank;
      proxy.deliver(rank, {abort_.number(), 0, 0, 0, 0, abort_.number(), 0, word}, nullptr);
    }
    return told_ != before;
  }

  std::shared_ptr<ProxyThread> proxy_thread_;
  const NodeMemory &staging_, &flags_, &abort_;
  std::vector<Entry> entries_;  ///< in the place of the first one: how many were written
  uint32_t remote_ranks_ = 0;
  uint32_t told_ = 0;  ///< a bit for each rank that has been told that this one has given up
  int64_t num_sent_ = 0;
};

class NodeFabric final : public Fabric, private PeerWatch {
 public:
  NodeFabric(std::unique_ptr<Fabric> local, std::unique_ptr<NodeLink> link, int rank, const std::vector<int>& node_of,
             std::chrono::nanoseconds heartbeat_timeout)
      : rank_(rank), local_(std::move(local)) {
    std::vector<int> remote;
    for (size_t peer = 0; peer < node_of.size(); ++peer)
      (node_of[peer] == node_of[static_cast<size_t>(rank)] ? local_ranks_ : remote).push_back(static_cast<int>(peer));
    proxy_thread_ = std::make_shared<ProxyThread>(std::move(link), std::move(remote), heartbeat_timeout);
  }
  ~NodeFabric() override { proxy_thread_->leave(); }

  int rank() const override { return rank_; }
  int world_size() const override {
    return static_cast<int>(local_ranks_.size() + proxy_thread_->remote_ranks().size());
  }
  std::string kind() const override { return local_->kind(); }
  Device& device() override { return local_->device(); }
  channel::WaitFunction wait_function() const override { return local_->wait_function(); }
  const void* wait_context() const override { return static_cast<const PeerWatch*>(this); }

  void set_timeout(std::chrono::nanoseconds timeout) override {
    Fabric::set_timeout(timeout);
    local_->set_timeout(timeout);
  }
  std::vector<std::string> all_gather(std::string_view mine) override {
    const uint64_t rendezvous = ++num_rendezvous_;
    proxy_thread_->send_text(rendezvous, mine);
    std::vector<std::string> all(static_cast<size_t>(world_size()));
    place(local_ranks_, local_->all_gather(mine), all);
    place(proxy_thread_->remote_ranks(), proxy_thread_->await_texts(rendezvous, timeout(), *this), all);
    return all;
  }

  std::unique_ptr<SymmetricMemory> allocate(size_t bytes) override {
    const uint64_t number = ++num_memories_;
    std::unique_ptr<SymmetricMemory> memory;
    agree(*this, "shared memory", {{"bytes", std::to_string(bytes)}},
          problem_in([&] { memory = allocate_here(bytes, number); }));
    return memory;
  }

  std::unique_ptr<ProxyQueue> open_proxy_queue(const SymmetricMemory& staging, const SymmetricMemory& flags,
                                               const SymmetricMemory& abort) override {
    const auto of = [](const SymmetricMemory& memory) -> const NodeMemory& {
      return dynamic_cast<const NodeMemory&>(memory);
    };
    return std::make_unique<ChannelProxyQueue>(proxy_thread_, world_size(), of(staging), of(flags), of(abort));
  }

 private:
  bool has_dead_peer() const noexcept override {
    const auto* local = static_cast<const PeerWatch*>(local_->wait_context());
    return (local && local->has_dead_peer()) || proxy_thread_->has_dead_peer();
  }

  template <class T>
  static void place(const std::vector<int>& ranks, std::vector<T> values, std::vector<T>& all) {
    for (size_t i = 0; i < ranks.size(); ++i) all[static_cast<size_t>(ranks[i])] = std::move(values[i]);
  }

  /// Collective on this node.
  std::unique_ptr<SymmetricMemory> allocate_here(size_t bytes, uint64_t number) {
    auto local = local_->allocate(bytes);
    std::vector<uint64_t> addresses(static_cast<size_t>(world_size()));
    for (size_t i = 0; i < local_ranks_.size(); ++i)
      addresses[static_cast<size_t>(local_ranks_[i])] = local->address(static_cast<int>(i));
    std::vector<SendBuffer> send_buffers;
    for (const int peer : proxy_thread_->remote_ranks())
      addresses[static_cast<size_t>(peer)] = send_buffers.emplace_back(bytes).address();
    return std::make_unique<NodeMemory>(std::move(addresses), rank_, bytes, std::move(local), std::move(send_buffers),
                                        proxy_thread_, number);
  }

  const int rank_;
  std::unique_ptr<Fabric> local_;
  std::vector<int> local_ranks_;
  std::shared_ptr<ProxyThread> proxy_thread_;  ///< memory may outlive its fabric
  uint64_t num_rendezvous_ = 0, num_memories_ = 0;
};

}  // namespace

std::unique_ptr<Fabric> make_node_fabric(std::unique_ptr<Fabric> local, std::unique_ptr<NodeLink> link, int rank,
                                         const std::vector<int>& node_of, std::chrono::nanoseconds heartbeat_timeout) {
  if (local->device().target().is_gpu())
    throw Error(ErrorCode::unsupported,
                fmt::format("ranks of several nodes run on CPUs, not on {}; use GPUs of one machine", local->kind()));
  return std::make_unique<NodeFabric>(std::move(local), std::move(link), rank, node_of, heartbeat_timeout);
}

bool has_several_nodes(const Fabric& fabric) { return dynamic_cast<const NodeFabric*>(&fabric) != nullptr; }

}  // namespace seqtile::fabric
