// jit/fabric/transport/process_fabric.cpp -- ranks that are processes of one machine: memory of a file that has no
// name.
// SPDX-License-Identifier: Apache-2.0
//
// The process that starts the ranks makes the file (memfd) and lets them inherit it: nothing is left behind when the
// last rank ends, however it ends, and the size of /dev/shm does not matter. The first page of the file is for
// collective calls of the hosts, by the protocol of the channels: two sets of slots, single writers, every rank waits
// for every rank. More such pages follow, each for the survivors of the page before. Then follow the symmetric buffers,
// with the parts of all ranks side by side; each rank maps them where it likes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <utility>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "jit/base/descriptor.h"
#include "jit/base/machine_memory.h"
#include "jit/fabric/core/agreement.h"
#include "jit/fabric/core/rendezvous.h"
#include "jit/fabric/core/wait.h"
#include "jit/fabric/transport/node_fabric.h"
#include "jit/fabric/transport/process_memory.h"
#include "jit/fabric/transport/process_watch.h"
#include "seqtile/error.h"
#include "seqtile/fabric.h"

#include <fmt/format.h>

namespace seqtile {

using fabric::fail, fabric::FileMemory, fabric::kPage, fabric::Mapping, fabric::ProcessWatch, fabric::system_reason;

namespace {

constexpr uint64_t kMagic = 0x32'62'61'66'65'71'73;  // "sqefab2": tells a file of another kind or version
constexpr size_t kTextBytes = 4096;

/// A rank's contribution to a rendezvous: a part of its text, and the size of the whole text.
struct Slot {
  uint64_t total_bytes;
  char part[kTextBytes];
};

struct RendezvousPage {
  uint64_t magic;                                 ///< of the first page; the others begin as zeros
  int64_t world_size;                             ///< of the first page
  std::atomic<int64_t> pids[channel::kMaxRanks];  ///< of the first page
  struct alignas(64) Count {
    std::atomic<uint64_t> value;
  } calls[channel::kMaxRanks];  ///< how many of them a rank has brought its part to
  Slot slots[2][channel::kMaxRanks];
  std::atomic<uint64_t> leaving[channel::kMaxRanks];  ///< a rank goes to the next page: where it has free memory
  std::atomic<uint32_t> survivors;                    ///< who does, a bit for each rank; decided once
  std::atomic<uint32_t> left;                         ///< ranks that need this page no more, a bit for each
};

constexpr size_t kRendezvousBytes = (sizeof(RendezvousPage) + kPage - 1) / kPage * kPage;
constexpr int kNumPages = 16;  ///< what no rank touches takes no memory
constexpr size_t kFirstBuffer = kNumPages * kRendezvousBytes;

void leave(RendezvousPage& page, int rank) { page.left.fetch_or(uint32_t{1} << rank); }

using Clock = std::chrono::steady_clock;
using Timeout = std::chrono::nanoseconds;

std::string list_of(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

/// Waits until `absent` returns no rank any more.
void wait_for_ranks(int rank, Timeout timeout, const char* what, const std::function<std::vector<int>()>& absent) {
  const auto start = Clock::now();
  std::vector<int> missing;
  const auto is_over = [&] {
    missing = absent();
    return missing.empty() || Clock::now() - start > timeout;
  };
  fabric::wait_until(is_over, nullptr);
  if (!missing.empty())
    fail(ErrorCode::timeout,
         fmt::format("rank {} waited {:.3g} s for {} to {}; start all ranks, or give a longer timeout", rank,
                     std::chrono::duration<double>(timeout).count(), list_of(missing), what));
}

class ProcessFabric final : public Fabric {
 public:
  /// A rank of the processes that meet on page `page_number`; buffers lie from `first_buffer` on.
  ProcessFabric(std::shared_ptr<fabric::SharedFile> file, int page_number, int rank, std::vector<pid_t> pids,
                std::shared_ptr<Device> device, size_t first_buffer)
      : file_(std::move(file)),
        page_number_(page_number),
        rank_(rank),
        pids_(std::move(pids)),
        device_(std::move(device)),
        page_(file_->descriptor.get(), static_cast<size_t>(page_number) * kRendezvousBytes, kRendezvousBytes),
        watch_(pids_, rank, page().left),
        next_offset_(first_buffer) {}

  ~ProcessFabric() override { leave(page(), rank_); }

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(pids_.size()); }
  std::string kind() const override { return "processes"; }
  Device& device() override { return *device_; }
  channel::WaitFunction wait_function() const override { return fabric::wait_for_flag; }
  const void* wait_context() const override { return static_cast<const fabric::PeerWatch*>(&watch_); }

  std::vector<std::string> all_gather(std::string_view mine) override {
    std::vector<std::string> all(static_cast<size_t>(world_size()));
    size_t longest = mine.size(), done = 0;
    do {
      Slot(&slots)[channel::kMaxRanks] = page().slots[num_rendezvous_ & 1];
      Slot& own = slots[rank_];
      own.total_bytes = mine.size();
      mine.copy(own.part, kTextBytes, std::min(done, mine.size()));
      meet();
      for (size_t rank = 0; rank < all.size(); ++rank) {
        const size_t total = slots[rank].total_bytes;
        longest = std::max(longest, total);
        if (total > done) all[rank].append(slots[rank].part, std::min(total - done, kTextBytes));
      }
      done += kTextBytes;
    } while (done < longest);
    return all;
  }

  std::unique_ptr<SymmetricMemory> allocate(size_t bytes) override {
    const size_t stride = (bytes + kPage - 1) / kPage * kPage, offset = next_offset_;
    const size_t end = offset + FileMemory::file_bytes(world_size(), stride);
    const fabric::Arguments arguments{{"bytes", std::to_string(bytes)}};
    fabric::agree(*this, "shared memory", arguments, fabric::problem_in([&] {
      if (rank_ == 0) grow_file(end);
    }));
    std::unique_ptr<SymmetricMemory> memory;
    fabric::agree(*this, "shared memory", arguments, fabric::problem_in([&] {
      memory = std::make_unique<FileMemory>(file_, world_size(), offset, stride, bytes);
    }));
    next_offset_ = end;
    return memory;
  }

  /// Every rank comes or has died; the first to see that decides who goes on.
  std::unique_ptr<Fabric> survivors(Timeout timeout) {
    if (page_number_ + 1 == kNumPages)
      fail(ErrorCode::out_of_resources, fmt::format("ranks can go on without others {} times", kNumPages - 1));
    page().leaving[rank_].store(next_offset_);
    wait_for_ranks(rank_, timeout, "go on without those that have died", [&] { return undecided_ranks(); });
    const uint32_t going = page().survivors.load();
    std::vector<pid_t> pids;
    int rank = 0;
    size_t offset = 0;
    for (int old = 0; old < world_size(); ++old) {
      if (!(going >> old & 1)) continue;
      if (old == rank_) rank = static_cast<int>(pids.size());
      pids.push_back(pids_[static_cast<size_t>(old)]);
      offset = std::max<size_t>(offset, page().leaving[old].load());
    }
    return std::make_unique<ProcessFabric>(file_, page_number_ + 1, rank, std::move(pids), device_, offset);
  }

 private:
  /// The file takes memory page by page as ranks write: too large a one would end them in the middle of a launch.
  void grow_file(size_t end) const {
    const auto most = static_cast<size_t>(machine_bytes());
    const size_t all = file_->held_bytes + (end - next_offset_);
    if (all > most)
      fail(ErrorCode::out_of_resources,
           fmt::format("{} bytes of shared memory are more than this machine's {}; lower the channels' capacity", all,
                       most));
    if (ftruncate(file_->descriptor.get(), static_cast<off_t>(end)) != 0)
      fail(ErrorCode::out_of_resources, fmt::format("no {} bytes of shared memory: {}", end, system_reason()));
  }

  RendezvousPage& page() const { return *static_cast<RendezvousPage*>(page_.data()); }
  bool has_left(int rank) const { return (page().left.load() >> rank & 1) != 0; }

  /// Ranks that have neither come nor gone. When there are none, decides which ranks survive; then there are none.
  std::vector<int> undecided_ranks() {
    std::vector<int> absent;
    uint32_t going = 0, undecided = 0;
    for (int rank = 0; rank < world_size() && page().survivors.load() == 0; ++rank) {
      if (rank != rank_ && (watch_.is_dead(rank) || has_left(rank))) continue;
      if (page().leaving[rank].load() == 0) absent.push_back(rank);
      going |= uint32_t{1} << rank;
    }
    if (absent.empty()) page().survivors.compare_exchange_strong(undecided, going);
    return absent;
  }

  void meet() {
    const uint64_t count = ++num_rendezvous_;
    const auto start = Clock::now();
    page().calls[rank_].value.store(count, std::memory_order_release);
    for (int peer = 0; peer < world_size(); ++peer) {
      const auto& theirs = page().calls[peer].value;
      const auto has_come = [&] { return theirs.load(std::memory_order_acquire) >= count; };
      const auto is_over = [&] { return has_come() || has_left(peer) || Clock::now() - start > timeout(); };
      if (!fabric::wait_until(is_over, &watch_))
        fail(ErrorCode::aborted, fmt::format("rank {} waits for rank {}, and a rank has died", rank_, peer));
      if (has_come()) continue;
      if (has_left(peer))
        fail(ErrorCode::aborted, fmt::format("rank {} waits for rank {}, which has left", rank_, peer));
      leave(page(), rank_);  // whoever comes still is told
      fail(ErrorCode::timeout, fabric::waited_in_vain(rank_, {peer}, timeout()));
    }
  }

  std::shared_ptr<fabric::SharedFile> file_;
  const int page_number_, rank_;
  const std::vector<pid_t> pids_;
  std::shared_ptr<Device> device_;  ///< goes on with the survivors
  Mapping page_;
  ProcessWatch watch_;
  uint64_t num_rendezvous_ = 0;
  size_t next_offset_;
};

Descriptor duplicate(int fd) {
  Descriptor copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (copy.get() < 0) fail(ErrorCode::invalid_argument, fmt::format("descriptor {}: {}", fd, system_reason()));
  return copy;
}

/// Errors: invalid_argument.
void check_is_world(int fd) {
  uint64_t magic = 0;
  const bool is_large = lseek(fd, 0, SEEK_END) >= static_cast<off_t>(kFirstBuffer);
  if (!is_large || pread(fd, &magic, sizeof(magic), 0) != sizeof(magic) || magic != kMagic)
    fail(ErrorCode::invalid_argument, "the descriptor is not a file of this version's fabric");
}

/// Enters a rank; the processes of all when all are there.
std::vector<pid_t> join(RendezvousPage& page, int rank, Timeout timeout) {
  const auto world_size = static_cast<int>(page.world_size);
  if (rank < 0 || rank >= world_size)
    fail(ErrorCode::invalid_argument,
         fmt::format("rank {} of {}: ranks are 0 to {}", rank, world_size, world_size - 1));
  int64_t nobody = 0;
  if (!page.pids[rank].compare_exchange_strong(nobody, getpid()))
    fail(ErrorCode::invalid_argument, fmt::format("rank {} is process {} already", rank, nobody));
  const auto absent_ranks = [&] {
    std::vector<int> absent;
    for (int peer = 0; peer < world_size; ++peer)
      if (page.pids[peer].load() == 0) absent.push_back(peer);
    return absent;
  };
  try {
    wait_for_ranks(rank, timeout, "join", absent_ranks);
    if (page.left.load() != 0) fail(ErrorCode::aborted, "a rank has given up joining; start all ranks anew");
  } catch (...) {
    leave(page, rank);
    throw;
  }
  std::vector<pid_t> pids;
  for (int peer = 0; peer < world_size; ++peer) pids.push_back(static_cast<pid_t>(page.pids[peer].load()));
  return pids;
}

}  // namespace

int make_process_world(int world_size) {
  fabric::check_world_size(world_size);
  Descriptor file(static_cast<int>(syscall(SYS_memfd_create, "seqtile fabric", 0)));
  if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(kFirstBuffer)) != 0)
    fail(ErrorCode::out_of_resources, "no shared memory: " + system_reason());
  const Mapping mapping(file.get(), 0, kRendezvousBytes);
  auto* page = new (mapping.data()) RendezvousPage{};
  page->world_size = world_size;
  page->magic = kMagic;
  return file.release();
}

std::unique_ptr<Fabric> join_process_fabric(int fd, int rank, int num_threads, Timeout timeout) {
  const auto file = std::make_shared<fabric::SharedFile>(duplicate(fd));
  check_is_world(file->descriptor.get());
  const Mapping world(file->descriptor.get(), 0, kRendezvousBytes);
  auto device = make_cpu_device(num_threads);
  auto pids = join(*static_cast<RendezvousPage*>(world.data()), rank, timeout);
  try {
    auto fabric = std::make_unique<ProcessFabric>(file, 0, rank, std::move(pids), std::move(device), kFirstBuffer);
    fabric->all_gather("");  // all watch each other before one can end
    return fabric;
  } catch (...) {
    leave(*static_cast<RendezvousPage*>(world.data()), rank);  // nobody waits for a rank that has no fabric
    throw;
  }
}

std::unique_ptr<Fabric> survivors_of(Fabric& fabric, Timeout timeout) {
  if (fabric::has_several_nodes(fabric))
    throw Error(ErrorCode::unsupported,
                "ranks of several nodes do not go on without one that has died; start all anew");
  if (auto* processes = dynamic_cast<ProcessFabric*>(&fabric)) return processes->survivors(timeout);
  throw Error(ErrorCode::unsupported,
              fmt::format("ranks of kind {} do not die alone; Channel::reset() serves all of them", fabric.kind()));
}

}  // namespace seqtile
