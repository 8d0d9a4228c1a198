// jit/fabric/process_fabric.cpp -- ranks that are processes of one machine: memory of a file that has no name.
// SPDX-License-Identifier: Apache-2.0
//
// Whoever starts the ranks makes the file (memfd) and lets them inherit it: nothing is left behind when the last one
// ends, however it ends, and the size of /dev/shm does not matter. Its first page is where the host's side of the ranks
// meets, by the protocol of the channels: two sets of slots, single writers, everyone waits for everyone. Behind it
// follow the symmetric buffers, the parts of all ranks side by side, mapped by each rank where it likes.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "jit/error.h"
#include "jit/fabric.h"
#include "jit/fabric/meeting.h"
#include "jit/fabric/wait.h"

#include <fmt/format.h>

namespace seqtile {
namespace {

constexpr uint64_t kMagic = 0x31'62'61'66'65'71'73;  // "sqefab1": tells a file of another kind or version
constexpr size_t kTextBytes = 4096;
constexpr size_t kPage = 4096;

/// What one rank brings to a meeting: a part of its text, and the size of all of it.
struct Slot {
  uint64_t total_bytes;
  char part[kTextBytes];
};

struct MeetingPage {
  uint64_t magic;
  int64_t world_size;
  std::atomic<int64_t> pids[channel::kMaxRanks];
  struct alignas(64) Count {
    std::atomic<uint64_t> value;
  } meetings[channel::kMaxRanks];  ///< that a rank has brought its part to
  Slot slots[2][channel::kMaxRanks];
};

constexpr size_t kMeetingBytes = (sizeof(MeetingPage) + kPage - 1) / kPage * kPage;

[[noreturn]] void fail(ErrorCode code, const std::string& what) { throw Error(code, "process fabric: " + what); }

std::string system_reason() { return std::strerror(errno); }

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
  FileMemory(int fd, int rank, int world_size, size_t offset, size_t stride, size_t bytes)
      : FileMemory(std::make_unique<Mapping>(fd, offset, stride * static_cast<size_t>(world_size)), world_size, stride,
                   bytes) {
    fd_ = fd, own_offset_ = offset + stride * static_cast<size_t>(rank), stride_ = stride;
  }
  /// The own part goes back to the system; where a peer still stores there, its page comes anew.
  ~FileMemory() override {
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(own_offset_),
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
  int fd_ = -1;
  size_t own_offset_ = 0, stride_ = 0;
};

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

 private:
  int fd_;
};

/// The peers, by descriptors that become readable when a process ends.
class ProcessWatch final : public fabric::PeerWatch {
 public:
  void add(pid_t pid) {
    const auto fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (fd < 0) fail(ErrorCode::aborted, fmt::format("cannot watch process {}: {}", pid, system_reason()));
    descriptors_.emplace_back(fd);
    polled_.push_back({fd, POLLIN, 0});
  }
  bool has_dead_peer() const noexcept override {
    std::array<pollfd, channel::kMaxRanks> now;
    std::copy(polled_.begin(), polled_.end(), now.begin());
    return poll(now.data(), polled_.size(), 0) > 0;
  }

 private:
  std::vector<Descriptor> descriptors_;
  std::vector<pollfd> polled_;
};

class ProcessFabric final : public Fabric {
 public:
  ProcessFabric(int fd, int rank, int num_threads)
      : file_(fcntl(fd, F_DUPFD_CLOEXEC, 0)), rank_(rank), device_(make_cpu_device(num_threads)) {
    if (file_.get() < 0) fail(ErrorCode::invalid_argument, fmt::format("descriptor {}: {}", fd, system_reason()));
    if (lseek(file_.get(), 0, SEEK_END) < static_cast<off_t>(kMeetingBytes))
      fail(ErrorCode::invalid_argument, fmt::format("descriptor {} is not a fabric's file", fd));
    page_ = std::make_unique<Mapping>(file_.get(), 0, kMeetingBytes);
    if (page().magic != kMagic)
      fail(ErrorCode::invalid_argument, fmt::format("descriptor {} is not a file of this version's fabric", fd));
    if (rank < 0 || rank >= world_size())
      fail(ErrorCode::invalid_argument,
           fmt::format("rank {} of {}: ranks are 0 to {}", rank, world_size(), world_size() - 1));
    join();
  }

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(page().world_size); }
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
    next_offset_ += stride * static_cast<size_t>(world_size());
    std::string problem;
    if (rank_ == 0 && ftruncate(file_.get(), static_cast<off_t>(next_offset_)) != 0) problem = system_reason();
    problem = all_gather(problem).front();
    if (!problem.empty())
      fail(ErrorCode::out_of_resources, fmt::format("no {} bytes of shared memory: {}", next_offset_, problem));
    return std::make_unique<FileMemory>(file_.get(), rank_, world_size(), offset, stride, bytes);
  }

 private:
  MeetingPage& page() const { return *static_cast<MeetingPage*>(page_->data()); }

  void join() {
    int64_t nobody = 0;
    if (!page().pids[rank_].compare_exchange_strong(nobody, getpid()))
      fail(ErrorCode::invalid_argument, fmt::format("rank {} is process {} already", rank_, nobody));
    const auto has_come = [&] {
      return std::all_of(page().pids, page().pids + world_size(), [](const auto& pid) { return pid.load() != 0; });
    };
    fabric::wait_until(has_come, nullptr);
    for (int peer = 0; peer < world_size(); ++peer)
      if (peer != rank_) watch_.add(static_cast<pid_t>(page().pids[peer].load()));
  }

  void meet() {
    const uint64_t count = ++num_meetings_;
    page().meetings[rank_].value.store(count, std::memory_order_release);
    for (int peer = 0; peer < world_size(); ++peer) {
      const auto& theirs = page().meetings[peer].value;
      const auto has_come = [&] { return theirs.load(std::memory_order_acquire) >= count; };
      if (!fabric::wait_until(has_come, &watch_))
        fail(ErrorCode::aborted, fmt::format("rank {} waits for rank {}, and a rank has died", rank_, peer));
    }
  }

  Descriptor file_;
  const int rank_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Mapping> page_;
  ProcessWatch watch_;
  uint64_t num_meetings_ = 0;
  size_t next_offset_ = kMeetingBytes;
};

}  // namespace

int make_process_world(int world_size) {
  fabric::check_world_size(world_size);
  const auto fd = static_cast<int>(syscall(SYS_memfd_create, "seqtile fabric", 0));
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(kMeetingBytes)) != 0) {
    const std::string reason = system_reason();
    if (fd >= 0) close(fd);
    fail(ErrorCode::out_of_resources, "no shared memory: " + reason);
  }
  const Mapping mapping(fd, 0, kMeetingBytes);
  auto* page = new (mapping.data()) MeetingPage{};
  page->world_size = world_size;
  page->magic = kMagic;
  return fd;
}

std::unique_ptr<Fabric> join_process_fabric(int fd, int rank, int num_threads) {
  return std::make_unique<ProcessFabric>(fd, rank, num_threads);
}

}  // namespace seqtile
