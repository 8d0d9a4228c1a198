// tests/jit/fabric/cuda_fabric_test.cpp -- ranks on GPUs against a fake driver: the calls that each rank makes.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/transport/cuda_memory_link.h"
#include "seqtile/fabric.h"

#include <catch2/catch.hpp>
#include <cstring>

#include <fmt/format.h>

#include "seqtile/error.h"
#include "tests/support/fakes/fake_cuda_driver.h"
#include "tests/support/ranks/ranks.h"

using namespace seqtile;
using seqtile::test::FakeCuda;

namespace {

/// Usable in a forked rank, where Catch2's checks are lost.
void require(bool holds, const std::string& what) {
  if (!holds) throw Error(ErrorCode::wrong_result, what);
}

void require_calls(FakeCuda& fake, const char* name, int count) {
  require(fake.calls(name) == count, fmt::format("{}: {} calls, not {}", name, fake.calls(name), count));
}

/// A view of the hosts' fabric, which on_ranks() owns.
class Borrowed final : public Fabric {
 public:
  explicit Borrowed(Fabric& fabric) : fabric_(fabric) {}
  int rank() const override { return fabric_.rank(); }
  int world_size() const override { return fabric_.world_size(); }
  std::string kind() const override { return fabric_.kind(); }
  Device& device() override { return fabric_.device(); }
  std::vector<std::string> all_gather(std::string_view mine) override { return fabric_.all_gather(mine); }
  std::unique_ptr<SymmetricMemory> allocate(size_t bytes) override { return fabric_.allocate(bytes); }

 private:
  Fabric& fabric_;
};

std::unique_ptr<Fabric> on_gpu(Fabric& hosts, int gpu) {
  return fabric::make_cuda_fabric(cuda::Driver::open(FakeCuda::kPath), std::make_unique<Borrowed>(hosts), gpu);
}

std::unique_ptr<Fabric> on_own_gpu(Fabric& hosts) { return on_gpu(hosts, hosts.rank()); }

/// All ranks report this part.
void check_all(const std::vector<std::string>& errors, const std::string& part) {
  for (const std::string& error : errors) CHECK_THAT(error, Catch::Contains(part));
}

void check_none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) CHECK(error == "");
}

}  // namespace

TEST_CASE("cuda fabric: threads reach each other's memory by peer access", "[fabric][cuda]") {
  FakeCuda fake("gpus=3");
  check_none(testing::on_ranks("threads", 3, [&](Fabric& hosts) {
    const auto fabric = on_own_gpu(hosts);
    require(fabric->kind() == "cuda:sm_90a", fabric->kind());
    const auto memory = fabric->allocate(64);
    const auto own = static_cast<char>('a' + fabric->rank());
    const auto* mine = reinterpret_cast<const char*>(memory->address(fabric->rank()));
    require(mine[0] == 0 && mine[63] == 0, "memory is not zero");
    fabric->all_gather("");
    for (int peer = 0; peer < 3; ++peer) reinterpret_cast<char*>(memory->address(peer))[fabric->rank()] = own;
    fabric->all_gather("");
    require(std::memcmp(mine, "abc", 3) == 0, "a peer's store is missing");
    const Channel channel(*fabric, {.capacity = 8, .staging_bytes = 256, .flags_per_source = 1});
    fabric->all_gather("");
  }));
  CHECK(fake.calls("cuCtxEnablePeerAccess") == 6);
  CHECK(fake.calls("cuIpcGetMemHandle") == 0);
  CHECK(fake.state().live_blocks == 0);
  CHECK(fake.state().live_contexts == 0);
  CHECK(fake.state().pushed_contexts == 0);
}

TEST_CASE("cuda fabric: peer access that is there already is no error", "[fabric][cuda]") {
  FakeCuda fake("gpus=2 cuCtxEnablePeerAccess=704");
  check_none(testing::on_ranks("threads", 2, [&](Fabric& hosts) { on_own_gpu(hosts)->allocate(1); }));
}

TEST_CASE("cuda fabric: processes open each other's memory, and free it when all have closed it", "[fabric][cuda]") {
  FakeCuda fake("gpus=3 pools=0");
  check_none(testing::on_ranks("processes", 3, [&](Fabric& hosts) {
    {
      const auto fabric = on_own_gpu(hosts);
      require_calls(fake, "cuCtxEnablePeerAccess", 0);
      auto first = fabric->allocate(64);
      require(first->address(0) != 0 && first->address(2) != 0, "an address is missing");
      require_calls(fake, "cuIpcGetMemHandle", 1);
      require_calls(fake, "cuIpcOpenMemHandle", 2);
      first.reset();
      require_calls(fake, "cuIpcCloseMemHandle", 2);
      require_calls(fake, "cuMemFree", 0);  // a peer may still have the memory open
      fabric->all_gather("");
      const auto second = fabric->allocate(64);
      require_calls(fake, "cuMemFree", 1);
      require(fake.state().live_opened == 2, "peers' blocks are not open");
      fabric->all_gather("");
    }
    require(fake.state().live_opened == 0, "a peer's block is still open");
    require_calls(fake, "cuMemFree", 1);  // the last allocation may be open elsewhere: it goes with the process
    hosts.all_gather("");
  }));
}

TEST_CASE("cuda fabric: what a driver refuses is one line on every rank", "[fabric][cuda][fault]") {
  FakeCuda fake("gpus=2");
  check_all(testing::on_ranks("threads", 3, on_own_gpu),
            "rank 2: there is no cuda:2 for it, the driver shows 2 GPUs; use fewer ranks");
  check_all(testing::on_ranks("threads", 2, [](Fabric& hosts) { on_gpu(hosts, 0); }),
            "ranks 0 and 1 are to run on one GPU, 0000:3b:00.0; give each its own");
  fake.now("gpus=2 island=1");
  check_all(testing::on_ranks("threads", 2, on_own_gpu),
            "cuda:0 (0000:3b:00.0) cannot reach the memory of the GPU 0000:3c:00.0; use GPUs that NVLink");
  fake.now("gpus=2 cuDeviceGetByPCIBusId=101");
  check_all(testing::on_ranks("processes", 2, on_own_gpu),
            "does not see the GPU 0000:3c:00.0 of another rank; let CUDA");
  fake.now("gpus=2 cuCtxEnablePeerAccess=1");
  check_all(testing::on_ranks("threads", 2, on_own_gpu), "enable peer access: CUDA_ERROR_INVALID_VALUE");
  const auto allocate = [](Fabric& hosts) { on_own_gpu(hosts)->allocate(1 << 20); };
  fake.now("gpus=2 pools=0 cuMemAlloc=2");
  check_all(testing::on_ranks("threads", 2, allocate),
            "allocate 1048576 bytes for all ranks: CUDA_ERROR_OUT_OF_MEMORY");
  fake.now("gpus=2 cuIpcGetMemHandle=1");
  check_all(testing::on_ranks("processes", 2, allocate), "share memory with other processes: CUDA_ERROR_INVALID_VALUE");
  fake.now("gpus=2 cuIpcOpenMemHandle=1");
  check_all(testing::on_ranks("processes", 2, allocate),
            "open the memory of another process: CUDA_ERROR_INVALID_VALUE");
}

TEST_CASE("cuda fabric: no driver is one line on every rank", "[fabric][cuda][fault]") {
  if (cuda::Driver::open()) return;  // this machine has a driver
  check_all(testing::on_ranks("threads", 2,
                              [](Fabric& hosts) { make_cuda_fabric(std::make_unique<Borrowed>(hosts), hosts.rank()); }),
            "no NVIDIA driver found (libcuda.so.1); use ranks on the CPU");
}
