// jit/fabric/transport/mpi_link.cpp -- see mpi_link.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/transport/mpi_link.h"

#include <mpi.h>

#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace seqtile::fabric {
namespace {

constexpr int kTag = 1;
constexpr std::chrono::seconds kLastMoment{2};  ///< for what was sent, at the end: its receivers may have ended

class MpiLink final : public NodeLink {
 public:
  MpiLink();
  ~MpiLink() override;
  void send(int to, std::vector<std::byte> bytes) override;
  std::optional<NodeMessage> receive() override;

 private:
  struct Sending {
    std::vector<std::byte> bytes;
    MPI_Request request;
  };
  struct Receiving {
    NodeMessage message;
    MPI_Request request;
  };
  /// MPI calls it when the attribute that stands for the link is deleted, by the link or by MPI_Finalize.
  static int end(MPI_Comm, int key, void* link, void*);
  void forget_sent();
  void start_receiving();

  MPI_Comm comm_ = MPI_COMM_NULL;
  int key_ = MPI_KEYVAL_INVALID;
  std::mutex mutex_;
  std::list<Sending> sending_;
  std::list<Receiving> receiving_;  ///< one at a time: messages stay in order
  bool has_ended_ = false;
};

MpiLink::MpiLink() {
  MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);  // a rank that does not answer counts as dead in time
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &end, &key_, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, key_, this);
}

MpiLink::~MpiLink() {
  if (has_ended_) return;
  MPI_Comm_delete_attr(MPI_COMM_SELF, key_);
  MPI_Comm_free_keyval(&key_);
}

int MpiLink::end(MPI_Comm, int, void* link, void*) {
  auto& self = *static_cast<MpiLink*>(link);
  const std::lock_guard lock(self.mutex_);
  const auto start = std::chrono::steady_clock::now();
  for (self.forget_sent(); !self.sending_.empty(); self.forget_sent()) {
    if (std::chrono::steady_clock::now() - start > kLastMoment) break;
    std::this_thread::yield();
  }
  // Messages that were not received to the end stay in memory, for MPI to read and write.
  std::make_unique<std::list<Sending>>(std::move(self.sending_)).release();
  std::make_unique<std::list<Receiving>>(std::move(self.receiving_)).release();
  self.has_ended_ = true;
  return MPI_SUCCESS;
}

void MpiLink::forget_sent() {
  for (auto sending = sending_.begin(); sending != sending_.end();) {
    int is_done = 0;
    const bool is_lost = MPI_Test(&sending->request, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    sending = is_done || is_lost ? sending_.erase(sending) : std::next(sending);
  }
}

void MpiLink::send(int to, std::vector<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (has_ended_) return;
  Sending& sending = sending_.emplace_back(Sending{std::move(bytes), MPI_REQUEST_NULL});
  if (MPI_Isend(sending.bytes.data(), static_cast<int>(sending.bytes.size()), MPI_BYTE, to, kTag, comm_,
                &sending.request) != MPI_SUCCESS)
    sending_.pop_back();
}

std::optional<NodeMessage> MpiLink::receive() {
  const std::lock_guard lock(mutex_);
  if (has_ended_) return std::nullopt;
  forget_sent();
  if (receiving_.empty()) start_receiving();
  int is_done = 0;
  if (receiving_.empty() || MPI_Test(&receiving_.front().request, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
      !is_done)
    return std::nullopt;
  NodeMessage message = std::move(receiving_.front().message);
  receiving_.clear();
  return message;
}

// Without waiting for the rest of a long one: its sender may be dead.
void MpiLink::start_receiving() {
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status;
  int has_come = 0, count = 0;
  if (MPI_Improbe(MPI_ANY_SOURCE, kTag, comm_, &has_come, &handle, &status) != MPI_SUCCESS || !has_come) return;
  MPI_Get_count(&status, MPI_BYTE, &count);
  auto& [message, request] = receiving_.emplace_back(
      Receiving{{status.MPI_SOURCE, std::vector<std::byte>(static_cast<size_t>(count))}, MPI_REQUEST_NULL});
  if (MPI_Imrecv(message.bytes.data(), count, MPI_BYTE, &handle, &request) != MPI_SUCCESS) receiving_.clear();
}

}  // namespace

std::unique_ptr<NodeLink> make_mpi_link() { return std::make_unique<MpiLink>(); }

}  // namespace seqtile::fabric
