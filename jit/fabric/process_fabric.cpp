// jit/fabric/process_fabric.cpp -- ranks that are processes of one machine: memory of a file that has no name.
// SPDX-License-Identifier: Apache-2.0
//
// Whoever starts the ranks makes the file (memfd) and lets them inherit it: nothing is left behind when the last one
// ends, however it ends, and the size of /dev/shm does not matter. Its first part is where the host's side of the ranks
// meets, by the protocol of the channels: two sets of slots, single writers, everyone waits for everyone. More such
// pages stand behind it, each for those that outlive the ranks of the one before. Then follow the symmetric buffers,
// the parts of all ranks side by side, mapped by each rank where it likes.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <new>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "jit/error.h"
#include "jit/fabric.h"
#include "jit/fabric/agreement.h"
#include "jit/fabric/meeting.h"
#include "jit/fabric/wait.h"

#include <fmt/format.h>

namespace seqtile {
namespace {

constexpr uint64_t kMagic = 0x32'62'61'66'65'71'73;  // "sqefab2": tells a file of another kind or version
constexpr size_t kTextBytes = 4096;
constexpr size_t kPage = 4096;

/// What one rank brings to a meeting: a part of its text, and the size of all of it.
struct Slot {
  uint64_t total_bytes;
  char part[kTextBytes];
};

struct MeetingPage {
  uint64_t magic;                                 ///< of the first page; the others begin as zeros
  int64_t world_size;                             ///< of the first page
  std::atomic<int64_t> pids[channel::kMaxRanks];  ///< of the first page
  struct alignas(64) Count {
    std::atomic<uint64_t> value;
  } meetings[channel::kMaxRanks];  ///< that a rank has brought its part to
  Slot slots[2][channel::kMaxRanks];
  std::atomic<uint64_t> leaving[channel::kMaxRanks];  ///< a rank goes to the next page: where it has free memory
  std::atomic<uint32_t> survivors;                    ///< who does, a bit for each rank; decided once
  std::atomic<uint32_t> left;                         ///< ranks that need this page no more, a bit for each
};

constexpr size_t kMeetingBytes = (sizeof(MeetingPage) + kPage - 1) / kPage * kPage;
constexpr int kNumPages = 16;  ///< what no rank touches takes no memory
constexpr size_t kFirstBuffer = kNumPages * kMeetingBytes;

[[noreturn]] void fail(ErrorCode code, const std::string& what) { throw Error(code, "process fabric: " + what); }

std::string system_reason() { return std::strerror(errno); }

/// A descriptor that is closed with the object.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

/// A shared mapping of a part of the file.
class Mapping {
 public:
  Mapping(int fd, size_t offset, size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    if (data_ == MAP_FAILED)
      fail(ErrorCode::out_of_resources, fmt::format("cannot map {} bytes: {}", bytes, system_reason()));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(data_, bytes_); }
  void* data() const { return data_; }

 private:
  void* data_;
  size_t bytes_;
};

class FileMemory final : public SymmetricMemory {
 public:
  FileMemory(std::shared_ptr<Descriptor> file, int rank, int world_size, size_t offset, size_t stride, size_t bytes)
      : FileMemory(std::make_unique<Mapping>(file->get(), offset, stride * static_cast<size_t>(world_size)), world_size,
                   stride, bytes) {
    file_ = std::move(file), own_offset_ = offset + stride * static_cast<size_t>(rank), stride_ = stride;
  }
  /// The own part goes back to the system; where a peer still stores there, its page comes anew.
  ~FileMemory() override {
    fallocate(file_->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(own_offset_),
              static_cast<off_t>(stride_));
  }

 private:
  FileMemory(std::unique_ptr<Mapping> mapping, int world_size, size_t stride, size_t bytes)
      : SymmetricMemory(addresses_in(*mapping, world_size, stride), bytes), mapping_(std::move(mapping)) {}

  static std::vector<uint64_t> addresses_in(const Mapping& mapping, int world_size, size_t stride) {
    std::vector<uint64_t> addresses;
    for (int rank = 0; rank < world_size; ++rank)
      addresses.push_back(reinterpret_cast<uint64_t>(mapping.data()) + stride * static_cast<size_t>(rank));
    return addresses;
  }

  std::unique_ptr<Mapping> mapping_;
  std::shared_ptr<Descriptor> file_;  ///< the buffer may outlive its fabric
  size_t own_offset_ = 0, stride_ = 0;
};

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

/// The peers, by descriptors that become readable when a process ends. One that has ended before is dead. One that has
/// given its fabric up and then ended may have sent all that is waited for: others may still have to send theirs.
class ProcessWatch final : public fabric::PeerWatch {
 public:
  ProcessWatch(const std::vector<pid_t>& pids, int own, const std::atomic<uint32_t>& left) : left_(left) {
    for (size_t rank = 0; rank < pids.size(); ++rank) {
      if (static_cast<int>(rank) == own) {
        polled_.push_back({-1, 0, 0});  // which poll() skips
        continue;
      }
      const auto fd = static_cast<int>(syscall(SYS_pidfd_open, pids[rank], 0));
      if (fd < 0 && errno != ESRCH)
        fail(ErrorCode::out_of_resources, fmt::format("cannot watch process {}: {}", pids[rank], system_reason()));
      descriptors_.emplace_back(fd);
      polled_.push_back({fd, POLLIN, 0});
      if (fd < 0) ended_ |= uint32_t{1} << rank;
    }
  }
  bool has_dead_peer() const noexcept override {
    std::array<pollfd, channel::kMaxRanks> now;
    std::copy(polled_.begin(), polled_.end(), now.begin());
    uint32_t ended = ended_;
    if (poll(now.data(), polled_.size(), 0) > 0)
      for (size_t rank = 0; rank < polled_.size(); ++rank) ended |= (now[rank].revents != 0 ? uint32_t{1} : 0) << rank;
    if (ended == 0) return false;
    if ((ended & ~left_.load()) != 0) return true;
    int64_t first = 0;
    const int64_t time = Clock::now().time_since_epoch().count();
    if (first_seen_.compare_exchange_strong(first, time)) return false;
    return time - first > std::chrono::duration_cast<Clock::duration>(kGrace).count();
  }
  bool is_dead(int rank) const {
    pollfd one = polled_[static_cast<size_t>(rank)];
    return (ended_ >> rank & 1) != 0 || poll(&one, 1, 0) > 0;
  }

 private:
  static constexpr std::chrono::milliseconds kGrace{500};

  std::vector<Descriptor> descriptors_;
  std::vector<pollfd> polled_;
  const std::atomic<uint32_t>& left_;
  mutable std::atomic<int64_t> first_seen_{0};  ///< when a peer was first seen to have left and ended
  uint32_t ended_ = 0;                          ///< before they could be watched: a bit for each
};

class ProcessFabric final : public Fabric {
 public:
  /// A rank of the processes that meet on page `page_number`; buffers lie from `first_buffer` on.
  ProcessFabric(Descriptor file, int page_number, int rank, std::vector<pid_t> pids, std::shared_ptr<Device> device,
                size_t first_buffer)
      : file_(std::make_shared<Descriptor>(std::move(file))),
        page_number_(page_number),
        rank_(rank),
        pids_(std::move(pids)),
        device_(std::move(device)),
        page_(file_->get(), static_cast<size_t>(page_number) * kMeetingBytes, kMeetingBytes),
        watch_(pids_, rank, page().left),
        next_offset_(first_buffer) {}

  ~ProcessFabric() override { page().left.fetch_or(uint32_t{1} << rank_); }

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
      Slot(&slots)[channel::kMaxRanks] = page().slots[num_meetings_ & 1];
      Slot& own = slots[rank_];
      own.total_bytes = mine.size();
      const std::string_view part = mine.substr(std::min(done, mine.size()), kTextBytes);
      std::memcpy(own.part, part.data(), part.size());
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
    const size_t end = offset + stride * static_cast<size_t>(world_size());
    const fabric::Wishes wishes{{"bytes", std::to_string(bytes)}};
    fabric::agree(*this, "shared memory", wishes, fabric::problem_in([&] {
      if (rank_ == 0) grow_file(end);
    }));
    std::unique_ptr<SymmetricMemory> memory;
    fabric::agree(*this, "shared memory", wishes, fabric::problem_in([&] {
      memory = std::make_unique<FileMemory>(file_, rank_, world_size(), offset, stride, bytes);
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
    return std::make_unique<ProcessFabric>(duplicate(file_->get()), page_number_ + 1, rank, std::move(pids), device_,
                                           offset);
  }

  static Descriptor duplicate(int fd) {
    Descriptor copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (copy.get() < 0) fail(ErrorCode::invalid_argument, fmt::format("descriptor {}: {}", fd, system_reason()));
    return copy;
  }

 private:
  /// The file takes memory page by page as ranks write: too large a one would end them in the middle of a launch.
  void grow_file(size_t end) const {
    const size_t most = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    if (end > most)
      fail(ErrorCode::out_of_resources,
           fmt::format("{} bytes of shared memory are more than this machine's {}; lower the channels' capacity", end,
                       most));
    if (ftruncate(file_->get(), static_cast<off_t>(end)) != 0)
      fail(ErrorCode::out_of_resources, fmt::format("no {} bytes of shared memory: {}", end, system_reason()));
  }

  MeetingPage& page() const { return *static_cast<MeetingPage*>(page_.data()); }
  bool has_left(int rank) const { return (page().left.load() >> rank & 1) != 0; }

  /// Those that neither have come nor are gone, until there are none and it is decided.
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
    const uint64_t count = ++num_meetings_;
    page().meetings[rank_].value.store(count, std::memory_order_release);
    for (int peer = 0; peer < world_size(); ++peer) {
      const auto& theirs = page().meetings[peer].value;
      const auto has_come = [&] { return theirs.load(std::memory_order_acquire) >= count; };
      if (!fabric::wait_until([&] { return has_come() || has_left(peer); }, &watch_))
        fail(ErrorCode::aborted, fmt::format("rank {} waits for rank {}, and a rank has died", rank_, peer));
      if (!has_come()) fail(ErrorCode::aborted, fmt::format("rank {} waits for rank {}, which has left", rank_, peer));
    }
  }

  std::shared_ptr<Descriptor> file_;
  const int page_number_, rank_;
  const std::vector<pid_t> pids_;
  std::shared_ptr<Device> device_;  ///< goes on with the survivors
  Mapping page_;
  ProcessWatch watch_;
  uint64_t num_meetings_ = 0;
  size_t next_offset_;
};

/// Errors: invalid_argument.
void check_is_world(int fd) {
  uint64_t magic = 0;
  const bool is_large = lseek(fd, 0, SEEK_END) >= static_cast<off_t>(kFirstBuffer);
  if (!is_large || pread(fd, &magic, sizeof(magic), 0) != sizeof(magic) || magic != kMagic)
    fail(ErrorCode::invalid_argument, "the descriptor is not a file of this version's fabric");
}

void leave(MeetingPage& page, int rank) { page.left.fetch_or(uint32_t{1} << rank); }

/// Enters a rank; the processes of all when all are there.
std::vector<pid_t> join(MeetingPage& page, int rank, Timeout timeout) {
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
  const Mapping mapping(file.get(), 0, kMeetingBytes);
  auto* page = new (mapping.data()) MeetingPage{};
  page->world_size = world_size;
  page->magic = kMagic;
  return file.release();
}

std::unique_ptr<Fabric> join_process_fabric(int fd, int rank, int num_threads, Timeout timeout) {
  Descriptor file = ProcessFabric::duplicate(fd);
  check_is_world(file.get());
  const Mapping world(file.get(), 0, kMeetingBytes);
  auto device = make_cpu_device(num_threads);
  auto pids = join(*static_cast<MeetingPage*>(world.data()), rank, timeout);
  try {
    auto fabric =
        std::make_unique<ProcessFabric>(std::move(file), 0, rank, std::move(pids), std::move(device), kFirstBuffer);
    fabric->all_gather("");  // all watch each other before one can end
    return fabric;
  } catch (...) {
    leave(*static_cast<MeetingPage*>(world.data()), rank);  // nobody waits for a rank that has no fabric
    throw;
  }
}

std::unique_ptr<Fabric> survivors_of(Fabric& fabric, Timeout timeout) {
  if (auto* processes = dynamic_cast<ProcessFabric*>(&fabric)) return processes->survivors(timeout);
  throw Error(ErrorCode::unsupported,
              fmt::format("ranks of kind {} do not die alone; Channel::reset() serves all of them", fabric.kind()));
}

}  // namespace seqtile
