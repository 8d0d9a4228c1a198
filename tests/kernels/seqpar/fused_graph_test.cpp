// tests/kernels/seqpar/fused_graph_test.cpp -- fused operations captured on every rank and replayed at any length.
// SPDX-License-Identifier: Apache-2.0
//
// A replay must give the bits of the eager call with the capacity's plan, on the same channel and with other rows in
// every iteration, and must write no row beyond the length.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "jit/error.h"
#include "kernels/registry.h"
#include "kernels/seqpar/alltoall_linear.h"
#include "kernels/seqpar/context_attention.h"
#include "kernels/seqpar/fused_handle.h"
#include "kernels/seqpar/matmul_backward.h"
#include "tests/support/temp_folder.h"

using namespace seqtile;
using namespace seqtile::kernels;
using seqpar::ContextAttentionForward;
using seqpar::FusedAllgatherAndLinear;
using seqpar::FusedAlltoallAndLinear;
using seqpar::FusedHandle;
using seqpar::FusedLinearAndReducescatter;
using Leading = seqpar::SequenceParallelLeadingMatmulBackward;
using Trailing = seqpar::SequenceParallelTrailingMatmulBackward;

namespace {

constexpr int kRanks = 2;
constexpr int64_t kCapacity = 22, kMostRows = 12, kN = 24, kK = 16;
constexpr const char* kTargets[] = {"sm_80", "sm_90a"};
constexpr uint16_t kPoison = 0xffff;

FusedAllgatherAndLinear gather_op() { return {.world_size = kRanks, .n = kN, .k = kK, .dtype = DType::bf16}; }
FusedLinearAndReducescatter reduce_op() {
  return {.world_size = kRanks, .n = kN, .k = kK, .residual = true, .dtype = DType::bf16};
}

FusedAlltoallAndLinear alltoall_op() {
  return {.world_size = kRanks, .heads = 2, .head_dim = kK / 2, .n = kN, .residual = true, .dtype = DType::bf16};
}
ContextAttentionForward attention_op() {
  return {.world_size = kRanks, .heads = 3, .kv_heads = 1, .head_dim = 8, .layout = "zigzag", .dtype = DType::bf16};
}

Trailing trailing_op() { return {.world_size = kRanks, .n = kK, .k = kN, .dtype = DType::bf16}; }
Leading leading_op() { return {.world_size = kRanks, .n = kN, .k = kK, .dtype = DType::bf16}; }

template <class Op>
int64_t owned_rows(const Op&, int rank, int64_t length) {
  return (rank + 1) * length / kRanks - rank * length / kRanks;
}
int64_t owned_rows(const ContextAttentionForward&, int rank, int64_t length) {
  return seqpar::num_rows(seqpar::RowLayout::zigzag, rank, length, kRanks);
}

/// Operands of one rank on its device, with rows for the longest call. x has rows of its own or all, and y too, or the
/// gradient of what one of both is; a weight's gradient stands behind it.
struct Operands {
  explicit Operands(DeviceMemory& memory)
      : x(memory, 2 * kCapacity * kK),
        w(memory, 2 * kN * kK),
        residual(memory, 2 * kCapacity * kN),
        y(memory, 2 * (kCapacity * kN + kN * kK)) {}
  DeviceBuffer x, w, residual, y;
};

Tensor matrix(const DeviceBuffer& buffer, int64_t rows, int64_t columns) {
  return make_tensor(buffer.data(), DType::bf16, {rows, columns});
}

FusedAllgatherAndLinear::Args args_of(const FusedAllgatherAndLinear&, const Operands& o, int64_t length, int64_t own) {
  return {.x = matrix(o.x, own, kK), .w = matrix(o.w, kN, kK), .y = matrix(o.y, length, kN)};
}
FusedLinearAndReducescatter::Args args_of(const FusedLinearAndReducescatter&, const Operands& o, int64_t length,
                                          int64_t own) {
  return {.x = matrix(o.x, length, kK),
          .w = matrix(o.w, kN, kK),
          .residual = matrix(o.residual, own, kN),
          .y = matrix(o.y, own, kN)};
}
/// k and v stand side by side in x.
ContextAttentionForward::Args args_of(const ContextAttentionForward&, const Operands& o, int64_t, int64_t own) {
  Tensor k = matrix(o.x, own, kK), v = k;
  v.data = static_cast<std::byte*>(o.x.data()) + kK;
  k.sizes[1] = v.sizes[1] = kK / 2;
  return {.q = matrix(o.residual, own, kN), .k = k, .v = v, .out = matrix(o.y, own, kN)};
}
FusedAlltoallAndLinear::Args args_of(const FusedAlltoallAndLinear&, const Operands& o, int64_t length, int64_t own) {
  Tensor x = matrix(o.x, length, kK);
  x.sizes[1] = kK / 2;
  return {.x = x, .w = matrix(o.w, kN, kK), .residual = matrix(o.residual, own, kN), .y = matrix(o.y, own, kN)};
}
Tensor gradient(const Operands& o, int64_t rows, int64_t columns) {
  return make_tensor(static_cast<uint16_t*>(o.y.data()) + kCapacity * kN, DType::bf16, {rows, columns});
}
Trailing::Args args_of(const Trailing&, const Operands& o, int64_t length, int64_t own) {
  return {.dz = matrix(o.x, own, kK),
          .w = matrix(o.w, kK, kN),
          .u = matrix(o.residual, length, kN),
          .du = matrix(o.y, length, kN),
          .dw = gradient(o, kK, kN)};
}
Leading::Args args_of(const Leading&, const Operands& o, int64_t length, int64_t own) {
  return {.dy = matrix(o.residual, length, kN),
          .w = matrix(o.w, kN, kK),
          .x = matrix(o.x, own, kK),
          .dx = matrix(o.y, own, kK),
          .dw = gradient(o, kN, kK)};
}
template <class Op>
constexpr bool kIsBackward = std::is_same_v<Op, Trailing> || std::is_same_v<Op, Leading>;

template <class Op>
int64_t rows_of_x(const Op& op, int rank, int64_t length) {
  return owned_rows(op, rank, length);
}
int64_t rows_of_x(const FusedLinearAndReducescatter&, int, int64_t length) { return length; }
int64_t rows_of_x(const FusedAlltoallAndLinear&, int, int64_t length) { return length; }
int64_t values_of_y(const FusedAllgatherAndLinear&, int, int64_t length) { return length * kN; }
int64_t values_of_y(const Trailing&, int, int64_t length) { return length * kN; }
int64_t values_of_y(const Leading& op, int rank, int64_t length) { return owned_rows(op, rank, length) * kK; }
template <class Op>
int64_t values_of_y(const Op& op, int rank, int64_t length) {
  return owned_rows(op, rank, length) * kN;
}

using Values = std::vector<uint16_t>;

/// One rank with its captured operation.
template <class Op>
class CapturedRank {
 public:
  CapturedRank(const std::string& folder, const autotune::Registry& registry, Fabric& fabric, const Op& op)
      : op_(op),
        fabric_(fabric),
        device_(fabric.device()),
        engine_(Engine::open(options(folder), registry, fabric)),
        channel_(fabric, channel_options(op)),
        handle_(*engine_, op, channel_),
        operands_(device_.memory()),
        length_(device_.memory(), sizeof(int64_t)),
        stream_(device_.streams()),
        random_(static_cast<uint32_t>(fabric.rank())) {
    send(operands_.w, kN * kK);
    send(operands_.residual, kMostRows * kN);
    device_.streams().synchronize(stream_);
    device_.streams().begin_capture(stream_);
    kept_ = handle_.capture(args_of(op_, operands_, kCapacity, kMostRows), kCapacity,
                            static_cast<const int64_t*>(length_.data()), stream_);
    graph_ = device_.streams().end_capture(stream_);
  }

  Graph& graph() { return *graph_; }
  Channel& channel() { return channel_; }
  Engine& engine() { return *engine_; }
  int64_t output_values(int64_t length) const { return values_of_y(op_, fabric_.rank(), length); }

  /// Kernels that a call hands to the driver, after the first one.
  int kernels_of_a_call(int64_t length) {
    device_.streams().begin_capture(stream_);
    handle_(args_of(op_, operands_, length, owned_rows(op_, fabric_.rank(), length)), length, stream_);
    return device_.streams().end_capture(stream_)->num_kernels();
  }

  /// Other rows of x than before, NaN behind them; what y holds after a replay on poison. Waits for nothing.
  void replay(const int64_t& length, Values& y) {
    send(operands_.x, rows_of_x(op_, fabric_.rank(), length) * kK);
    if (kIsBackward<Op>) send(operands_.residual, length * kN);
    device_.memory().copy(length_.data(), &length, sizeof length, stream_);
    into(y, [&] { graph_->launch(stream_); });
  }
  /// The same rows by a call.
  void call(int64_t length, Values& y) {
    into(y, [&] {
      handle_.call_as(kCapacity, args_of(op_, operands_, length, owned_rows(op_, fabric_.rank(), length)), length,
                      stream_);
    });
  }
  void synchronize() {
    device_.streams().synchronize(stream_);
    sent_.clear();
  }

 private:
  static EngineOptions options(const std::string& folder) {
    return {.threads = 1,
            .cache = folder + "/tuning.db",
            .artifacts = folder + "/artifacts.db",
            .policy = MissPolicy::fallback};
  }
  static ChannelOptions channel_options(const Op& op) {
    ChannelOptions options = seqpar::channel_options({op.workload()}, kCapacity);
    options.deadline = std::chrono::seconds(20);
    return options;
  }
  void send(const DeviceBuffer& buffer, int64_t count) {
    Values& values = sent_.emplace_back(buffer.bytes() / 2, kPoison);
    for (int64_t i = 0; i < count; ++i)
      values[static_cast<size_t>(i)] = f32_to_bf16(static_cast<float>(random_() % 2001) / 1000.0f - 1);
    device_.memory().copy(buffer.data(), values.data(), buffer.bytes(), stream_);
  }
  void into(Values& y, const std::function<void()>& run) {
    y.resize(operands_.y.bytes() / 2);
    device_.memory().fill(operands_.y.data(), 0xff, operands_.y.bytes(), stream_);
    run();
    device_.memory().copy(y.data(), operands_.y.data(), operands_.y.bytes(), stream_);
  }

  const Op op_;
  Fabric& fabric_;
  Device& device_;
  std::unique_ptr<Engine> engine_;
  Channel channel_;
  FusedHandle<Op> handle_;
  Operands operands_;
  DeviceBuffer length_;
  OwnedStream stream_;
  std::mt19937 random_;
  std::vector<Values> sent_;  ///< until the device has them
  std::shared_ptr<const void> kept_;
  std::unique_ptr<Graph> graph_;
};

/// `work(rank)` on a thread for each rank of simulated GPUs; throws what one of them throws.
template <class Op>
void on_every_rank(const char* target, const Op& op, const std::function<void(int, CapturedRank<Op>&)>& work) {
  const test::TempFolder folder;
  setenv("SEQTILE_CONFIG_DIR", folder.file("config").c_str(), 1);
  const autotune::Registry registry = make_registry();
  const auto fabrics = make_sim_fabric(target, kRanks);
  std::vector<std::exception_ptr> errors(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const auto r = static_cast<size_t>(rank);
        Op of_fabric = op;
        of_fabric.fabric = fabrics[r]->kind();
        CapturedRank<Op> captured(folder.path(), registry, *fabrics[r], of_fabric);
        work(rank, captured);
        fabrics[r]->all_gather("");  // peers may still store flags here
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

void require(bool is_true, const std::string& what) {
  if (!is_true) throw Error(ErrorCode::wrong_result, what);
}

bool is_nan(uint16_t bits) { return (bits & 0x7fff) > 0x7f80; }

/// Nothing but NaN that a kernel has written, then nothing but poison.
bool is_given_up(const Values& y, int64_t written) {
  for (size_t i = 0; i < y.size(); ++i)
    if (static_cast<int64_t>(i) < written ? !is_nan(y[i]) || y[i] == kPoison : y[i] != kPoison) return false;
  return true;
}

/// Lengths 0, 1, the capacity and one below it first, then any.
std::vector<int64_t> lengths_of(int count) {
  std::vector<int64_t> lengths{0, 1, kCapacity, kCapacity - 1};
  std::mt19937 random(3);
  while (static_cast<int>(lengths.size()) < count) lengths.push_back(static_cast<int64_t>(random() % (kCapacity + 1)));
  return lengths;
}

template <class Op>
void check_replays(const char* target, const Op& op, int count) {
  const std::vector<int64_t> lengths = lengths_of(count);
  on_every_rank<Op>(target, op, [&](int rank, CapturedRank<Op>& captured) {
    require(captured.graph().num_kernels() == 1, "a graph of more than one kernel");
    Values replayed, called;
    captured.replay(kCapacity, replayed);
    captured.call(kCapacity, called);
    captured.synchronize();
    for (const int64_t length : {int64_t{0}, int64_t{1}, kCapacity})
      require(captured.kernels_of_a_call(length) == 1, "a call of more than one kernel");
    const auto compiles = captured.engine().counters().compiles;
    for (const int64_t& length : lengths) {
      captured.replay(length, replayed);
      captured.call(length, called);
      captured.synchronize();
      const std::string where = fmt::format("{}, rank {}, length {}: ", target, rank, length);
      require(replayed == called, where + "the replay differs from the call");
      const auto end = replayed.begin() + captured.output_values(length), rest = replayed.begin() + kCapacity * kN;
      require(std::none_of(replayed.begin(), end, is_nan), where + "a row was not written");
      require(std::all_of(end, rest, [](uint16_t v) { return v == kPoison; }), where + "a row too many");
      require(std::any_of(rest, replayed.end(), is_nan) == !kIsBackward<Op>, where + "the gradient of a weight");
    }
    require(captured.engine().counters().compiles == compiles, "a call has compiled");
    require(captured.channel().epoch() == 2 * lengths.size() + 2, "an epoch is missing");
    if (const auto record = captured.channel().abort_record()) throw Error(ErrorCode::aborted, record->text());
    bool grows = true;
    try {
      captured.channel().reserve({.capacity = kCapacity + 1});
    } catch (const Error& error) {
      grows = error.code() != ErrorCode::unsupported;
    }
    require(!grows, "a channel whose memory a graph knows has grown");
  });
}

/// One rank takes another length in the third of four replays.
template <class Op>
void check_mismatch(const char* target, const Op& op) {
  on_every_rank<Op>(target, op, [&](int rank, CapturedRank<Op>& captured) {
    const int64_t lengths[] = {20, kCapacity, rank == 0 ? 13 : 12, 20};
    Values y[std::size(lengths)];
    for (size_t i = 0; i < std::size(lengths); ++i) captured.replay(lengths[i], y[i]);
    captured.synchronize();
    for (size_t i = 0; i < std::size(lengths); ++i)
      require(is_given_up(y[i], captured.output_values(lengths[i])) == (i >= 2),
              fmt::format("{}, rank {}, replay {}: right data or NaN is wanted", target, rank, i));
    const auto record = captured.channel().abort_record();
    require(record.has_value(), "no record");
    require(record->kind == channel::mismatch || record->kind == channel::aborted, record->text());
    require(record->epoch == 3, record->text());
    require(captured.channel().epoch() == std::size(lengths), "an epoch is missing");
  });
}

}  // namespace

TEST_CASE("fused graph: replays at changing lengths give the bits of calls, one kernel each",
          "[seqpar][sim][graph][sweep]") {
  for (const char* target : kTargets) {
    CHECK_NOTHROW(check_replays(target, gather_op(), 250));
    CHECK_NOTHROW(check_replays(target, reduce_op(), 250));
    CHECK_NOTHROW(check_replays(target, alltoall_op(), 40));
    CHECK_NOTHROW(check_replays(target, attention_op(), 40));
    CHECK_NOTHROW(check_replays(target, trailing_op(), 60));
    CHECK_NOTHROW(check_replays(target, leading_op(), 60));
  }
}

TEST_CASE("fused graph: a thousand replays of each operation", "[seqpar][sim][graph][slow]") {
  for (const char* target : kTargets) {
    CHECK_NOTHROW(check_replays(target, gather_op(), 1000));
    CHECK_NOTHROW(check_replays(target, reduce_op(), 1000));
    CHECK_NOTHROW(check_replays(target, alltoall_op(), 1000));
    CHECK_NOTHROW(check_replays(target, attention_op(), 1000));
  }
}

TEST_CASE("fused graph: another length on one rank is a record on all and NaN", "[seqpar][sim][graph]") {
  for (const char* target : kTargets) {
    CHECK_NOTHROW(check_mismatch(target, gather_op()));
    CHECK_NOTHROW(check_mismatch(target, reduce_op()));
    CHECK_NOTHROW(check_mismatch(target, attention_op()));
  }
}

TEST_CASE("fused graph: bad captures are refused", "[seqpar][graph]") {
  const test::TempFolder folder;
  setenv("SEQTILE_CONFIG_DIR", folder.file("config").c_str(), 1);
  const autotune::Registry registry = make_registry();
  const auto fabrics = make_thread_fabric(1);
  FusedAllgatherAndLinear op{.world_size = 1, .n = kN, .k = kK};
  const auto engine = Engine::open({.threads = 1,
                                    .cache = folder.file("tuning.db"),
                                    .artifacts = folder.file("artifacts.db"),
                                    .policy = MissPolicy::fallback},
                                   registry, *fabrics[0]);
  Channel channel(*fabrics[0], seqpar::channel_options({op.workload()}, 64));
  const FusedHandle handle(*engine, op, channel);
  std::vector<float> values(64 * 64);
  const int64_t length = 1;
  const auto capture = [&](int64_t rows, int64_t capacity) {
    (void)handle.capture({.x = make_tensor(values.data(), DType::f32, {rows, kK}),
                          .w = make_tensor(values.data(), DType::f32, {kN, kK}),
                          .y = make_tensor(values.data(), DType::f32, {capacity, kN})},
                         capacity, &length, {});
  };
  CHECK_THROWS_WITH(capture(65, 65), Catch::Contains("capacity 65 is above the channel's capacity 64"));
  CHECK_THROWS_WITH(capture(9, 10), Catch::Contains("a graph for 10 rows of 1 ranks needs 10 on every rank"));
  CHECK_THROWS_WITH(capture(10, 10), Catch::Contains("a CPU captures no graphs"));
}
