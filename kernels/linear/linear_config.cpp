// kernels/linear/linear_config.cpp -- configurations of linear and the model that ranks them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "autotune/gpu_model.h"
#include "jit/base/cdiv.h"
#include "kernels/linear/linear_config.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::linear_op {
namespace {

constexpr int64_t kMatrixRegisters = 8, kMatrixRows = 16;  // as in jit/codegen/cpu/kernels/micro_kernel.h

/// Form "matrix" reads plain weights as the transposed form does, others as the outer form.
bool packs_weights(const Linear& s) { return s.is_packed() || s.is_transposed(); }

/// Matrix registers: sums and operands.
int64_t matrix_registers(const Linear& s, const Tile& t) {
  const int64_t rows = cdiv(t.mr, kMatrixRows), weights = packs_weights(s) ? s.weights_per_loop() : 1;
  const int64_t columns = cdiv(t.nr, kMatrixRows) * weights;
  return rows * columns + rows + columns;
}

std::optional<std::string> matrix_refusal(const Linear& s, const Tile& t, const Target& target) {
  constexpr int64_t kMostSums = 2 << 20;  // y and y^T are then 16 MB of each thread's scratch memory
  if (!target.has_matrix_registers || s.dtype != DType::bf16 || s.k % (2 * kMatrixRows) != 0)
    return fmt::format("form = matrix is for bf16 with k a multiple of {} on CPUs with AMX", 2 * kMatrixRows);
  if (t.mr % kMatrixRows != 0 || t.nr % kMatrixRows != 0)
    return fmt::format("mr = {}, nr = {}: form = matrix takes multiples of {}", t.mr, t.nr, kMatrixRows);
  if (const int64_t sums = t.block_m * t.block_n * s.weights_per_loop(); sums > kMostSums)
    return fmt::format("block_m = {}, block_n = {} are {} sums, form = matrix has {} at most", t.block_m, t.block_n,
                       sums, kMostSums);
  return std::nullopt;
}

/// Vector registers that the micro-kernel of `tile` needs: accumulators, operands, and a product where there is no FMA.
int64_t registers(const Linear& s, const Tile& t, const Target& target) {
  const int64_t weights = s.weights_per_loop(), extra = target.has_fma ? 1 : 2;
  if (t.form == "outer") {
    const int64_t vectors = cdiv(t.nr, target.lanes_f32()) * weights;
    return t.mr * vectors + vectors + extra;
  }
  if (t.form == "transposed") {
    const int64_t vectors = cdiv(t.mr, target.lanes_f32());
    return t.nr * vectors + vectors + extra;
  }
  return t.mr * t.nr * weights + std::min(t.mr, t.nr * weights) + extra;
}

/// Packed x, one packed panel of w, the accumulators that wait between slices of k.
int64_t scratch_bytes(const Linear& s, const Tile& t) {
  const int64_t weights = s.weights_per_loop();
  const int64_t sums = s.k > t.kc ? t.block_m * t.block_n * weights : t.mr * t.nr * weights;
  int64_t panels = 0;
  if (t.form == "outer") panels = t.block_m * t.kc + t.kc * t.nr * weights;
  if (t.form == "transposed") panels = t.block_m * t.kc + t.block_m * t.block_n * weights;
  if (t.form == "matrix")  // bf16; the sums are written and read in long runs, wherever they are
    return 2 * t.kc * (t.block_m + (packs_weights(s) ? t.nr * weights : 0));
  return (panels + sums) * 4;
}

/// Elements of k in one multiply-add: a pair where the target has the bf16 dot product.
int64_t elements_per_step(const Linear& s, const Target& target) {
  return s.dtype == DType::bf16 && target.has_bf16_dot ? 2 : 1;
}

/// Without conversion, so that one element can go from memory into all lanes.
bool reads_weights_as_they_are(const Linear& s, const Target& target) {
  return s.dtype == DType::f32 || (s.dtype == DType::bf16 && target.has_bf16_dot);
}

/// k in equal slices of about `target`, a multiple of 32 so that every vector width divides them.
int64_t balanced_slice(int64_t k, int64_t target) {
  const int64_t slices = std::max<int64_t>(1, (k + target / 2) / target);
  return round_up(cdiv(k, slices), 32);
}

/// Rows of a micro-kernel that need the fewest row steps for `length` and no larger than needed for that.
int64_t fitted_rows(int64_t length, int64_t limit) { return cdiv(length, cdiv(length, limit)); }

/// Rows of equal blocks of about `target` rows, in steps of `step`.
int64_t balanced_rows(int64_t length, int64_t target, int64_t step) {
  const int64_t steps = cdiv(length, step), blocks = std::max<int64_t>(1, (length + target / 2) / target);
  return cdiv(steps, blocks) * step;
}

/// Collects legal tiles once each.
class Collector {
 public:
  Collector(const Linear& s, int threads, const Target& target, std::optional<DType> result)
      : s_(s), threads_(threads), target_(target), result_(result) {}
  void add(const Tile& t) {
    if (!refusal(s_, t, threads_, target_, result_) && seen_.insert(t).second) tiles_.push_back(t);
  }
  bool empty() const { return tiles_.empty(); }
  std::vector<Tile> take() { return std::move(tiles_); }

 private:
  const Linear& s_;
  int threads_;
  const Target& target_;
  const std::optional<DType> result_;
  std::set<Tile> seen_;
  std::vector<Tile> tiles_;
};

/// Column blocks of about 64, 256 and 1024 columns, as many as the threads can share evenly.
std::vector<int64_t> column_blocks(const Linear& s, int64_t nr, int threads, std::initializer_list<int64_t> targets) {
  const int64_t widest = std::max({s.n, s.n2, s.n3});
  std::vector<int64_t> result;
  for (const int64_t target : targets) {
    int64_t blocks = std::max<int64_t>(1, (widest + target / 2) / target);
    if (blocks > threads / 2) blocks = round_up(blocks, threads);
    const int64_t block_n = round_up(cdiv(widest, blocks), nr);
    if (std::find(result.begin(), result.end(), block_n) == result.end()) result.push_back(block_n);
  }
  return result;
}

void collect_outer(const Linear& s, int threads, int64_t length, const Target& target, Collector& collector) {
  const int64_t lanes = target.lanes_f32(), weights = s.weights_per_loop(), per_step = elements_per_step(s, target);
  for (int64_t vectors = 1; vectors <= 4; ++vectors) {
    const int64_t nr = vectors * lanes;
    if (s.is_packed() && nr != s.panel) continue;
    const int64_t limit =
        (target.num_vector_registers - (target.has_fma ? 1 : 2)) / (vectors * weights) - 1;  // rows that fit
    if (limit < 1) continue;
    std::set<int64_t> rows = {fitted_rows(length, limit)};
    if (limit > 4) rows.insert(fitted_rows(length, limit - 1));  // a register to spare saves spills
    for (const int64_t mr : rows)
      for (const int64_t slice : {256, 512})
        for (const int64_t block_n : column_blocks(s, nr, threads, {128, 256, 512, 1024}))
          for (const int64_t block_m : {128, 256, 512}) {
            if (block_m > 128 && block_m / 2 >= round_up(length, mr)) continue;
            const int64_t rows = balanced_rows(length, block_m, mr);
            collector.add({"outer", rows, block_n, mr, nr, balanced_slice(s.k, slice * per_step)});
          }
  }
}

/// Vectors along rows of x: as many as the registers allow, or as the rows fill.
void collect_transposed(const Linear& s, int threads, int64_t length, const Target& target, Collector& collector) {
  constexpr int64_t kMostVectors = 4, kMostColumns = 8;  // more columns are more addresses than registers hold
  const int64_t lanes = target.lanes_f32(), per_step = elements_per_step(s, target);
  if (s.is_packed() || s.is_transposed() || length < lanes / 2 || !reads_weights_as_they_are(s, target) ||
      s.k % per_step)
    return;
  const int64_t registers_left = target.num_vector_registers - (target.has_fma ? 1 : 2);
  for (int64_t vectors = 1; vectors <= kMostVectors; ++vectors) {
    const int64_t mr = vectors * lanes, nr = std::min(kMostColumns, registers_left / vectors - 1);
    if (nr < 2 || (vectors > 1 && mr - lanes >= length)) continue;
    for (const int64_t slice : {128, 256, 512})
      for (const int64_t block_n : column_blocks(s, nr, threads, {256, 512, 1024}))
        for (const int64_t block_m : {64, 128, 256, 512}) {
          if (block_m > 64 && block_m / 2 >= round_up(length, mr)) continue;
          const int64_t whole_panels = std::min(round_up(length, lanes), std::max(mr, block_m / mr * mr));
          for (const int64_t rows : {whole_panels, balanced_rows(length, block_m, lanes)})
            collector.add({"transposed", rows, block_n, mr, nr, balanced_slice(s.k, slice * per_step)});
        }
  }
}

/// Blocks of 32 x 32, or what the rows fill of 16 x 48.
void collect_matrix(const Linear& s, int threads, int64_t length, const Target& target, Collector& collector) {
  if (!target.has_matrix_registers || length < kMatrixRows / 2) return;
  using Block = std::pair<int64_t, int64_t>;
  for (const auto& [mr, nr] : {Block{32, 32}, Block{32, 16}, Block{48, 16}, Block{16, 48}}) {
    if (mr - kMatrixRows >= length) continue;
    for (const int64_t slice : {256, 512, 1024, 4096})
      for (const int64_t block_n : column_blocks(s, nr, threads, {512, 1024, 2048, 4096}))
        for (const int64_t block_m : {64, 128, 256, 512, 1024, 2048}) {
          if (block_m > 64 && block_m / 2 >= round_up(length, mr)) continue;
          collector.add({"matrix", balanced_rows(length, block_m, mr), block_n, mr, nr, balanced_slice(s.k, slice)});
        }
  }
}

void collect_dot(const Linear& s, int threads, int64_t length, const Target& target, Collector& collector) {
  constexpr int64_t kMostLength = 256;
  if (s.is_packed() || s.is_transposed() || length > kMostLength) return;
  // More columns are more streams than caches follow, or more sums than a vector has lanes for.
  const int64_t most_columns = std::min<int64_t>(8, target.lanes_f32());
  const int64_t weights = s.weights_per_loop(), per_step = elements_per_step(s, target);
  const int64_t registers_left = target.num_vector_registers - (target.has_fma ? 1 : 2);
  for (int64_t mr = 1; mr <= 8; ++mr) {
    if (round_up(length, mr) * 5 > length * 6 + 4 || mr > length) continue;  // a fifth of the work would be waste
    int64_t most = 0;
    for (int64_t nr = 1; nr * weights <= most_columns; ++nr)
      if (mr * nr * weights + std::min(mr, nr * weights) <= registers_left) most = nr;
    for (const int64_t nr : std::set<int64_t>{most, most > 4 ? most / 2 : most}) {
      if (nr < 1 || mr * nr * weights < std::min<int64_t>(4, registers_left / 4)) continue;
      // A few rows of x stay in L1 whole; more of them in slices.
      for (const int64_t slice : {int64_t{512}, length <= 4 ? s.k : int64_t{1024}})
        for (const int64_t block_n : column_blocks(s, nr, threads, {64, 256, 512}))
          for (const int64_t rows : {length, int64_t{64}})
            collector.add(
                {"dot", round_up(std::min(rows, length), mr), block_n, mr, nr, balanced_slice(s.k, slice * per_step)});
    }
  }
}

/// Vector cycles of one step of the micro-kernel over its multiply-adds at two a cycle: 1 is the machine's peak.
double register_inefficiency(const Linear& s, const Tile& t, const Target& target) {
  const double lanes = target.lanes_f32(), weights = s.weights_per_loop();
  const bool is_outer = t.form == "outer";
  if (t.form == "transposed") {
    const double vectors = static_cast<double>(t.mr) / lanes, products = static_cast<double>(t.nr) * vectors;
    const double loads = vectors + static_cast<double>(t.nr);
    return std::max({products / 2 + loads / 6, loads / 2, 4.0}) / (products / 2);
  }
  const double columns = weights * (is_outer ? static_cast<double>(t.nr) / lanes : static_cast<double>(t.nr));
  const double rows = static_cast<double>(t.mr), products = rows * columns;
  // Multiply-adds hide most of the loads; each accumulator waits four cycles for itself.
  double cycles = std::max(products / 2 + (rows + columns) / 6, 4.0);
  if (!is_outer) {
    const double slice_bytes = static_cast<double>(std::min(t.kc, s.k) * 4 / elements_per_step(s, target));
    const double operands = (rows + columns) * slice_bytes, l1 = static_cast<double>(target.l1_bytes);
    const bool repeats = t.block_m > t.mr;  // weights come back for every mr rows, rows for every nr columns
    if (operands > 0.7 * l1) cycles += (repeats ? columns : rows) / (operands > l1 ? 2 : 8);
    if (repeats) cycles *= 1.17;
    const double block_bytes = static_cast<double>(t.block_m + t.block_n * s.weights_per_loop()) * slice_bytes;
    if (repeats && block_bytes > static_cast<double>(target.l2_bytes)) cycles *= 1.2;
  }
  return cycles / (products / 2);
}

/// Products wait for operands, which come from L2 where a slice of the packed side fits in there beside what streams
/// past it; sums go through memory for each slice. The packed side is packed for each block of the other one, the other
/// one streams past each of its blocks.
double matrix_cycles(const Linear& s, const Tile& t, double rows, double columns, const Target& target) {
  constexpr double kProduct = 28, kLoad = 8, kBeyondL2 = 1.4, kSum = 24, kPackedElement = 0.35, kStreamedElement = 0.5;
  constexpr double kRegister = kMatrixRows * kMatrixRows, kShareOfL2 = 0.75;
  const double a = static_cast<double>(t.nr / kMatrixRows), b = static_cast<double>(t.mr / kMatrixRows);
  const double sums = rows * columns / kRegister, k = static_cast<double>(s.k);
  const double by_rows = rows * std::ceil(columns / static_cast<double>(t.block_n));
  const double by_columns = columns * std::ceil(rows / static_cast<double>(t.block_m));
  const double packed = packs_weights(s) ? by_columns : by_rows, streamed = packs_weights(s) ? by_rows : by_columns;
  const auto slice_bytes = static_cast<double>((packs_weights(s) ? t.block_n : t.block_m) * t.kc * 2);
  const double beyond = slice_bytes > kShareOfL2 * static_cast<double>(target.l2_bytes) ? kBeyondL2 : 1;
  return sums * k / (2 * kMatrixRows) * (kProduct + kLoad * (a + b) / (a * b)) * beyond +
         sums * static_cast<double>(cdiv(s.k, t.kc)) * kSum + packed * k * kPackedElement +
         streamed * k * kStreamedElement;
}

/// Rows that the transposed form pays for: whole panels, and what is left as pairs of vectors and one more.
double panel_rows(const Tile& t, int64_t length, const Target& target) {
  constexpr double kPair = 1.15, kSingle = 1.5;  // fewer sums in flight
  const int64_t lanes = target.lanes_f32();
  const auto of_block = [&](int64_t rows) {
    const int64_t filled = cdiv(rows, lanes), panel = t.mr / lanes, left = filled % panel;
    const double vectors = static_cast<double>(filled - left) + kPair * static_cast<double>(left / 2 * 2) +
                           kSingle * static_cast<double>(left % 2);
    return vectors * static_cast<double>(lanes);
  };
  return static_cast<double>(length / t.block_m) * of_block(t.block_m) + of_block(length % t.block_m);
}

void collect_mma(const Linear& s, int64_t length, const Target& target, Collector& collector) {
  constexpr int64_t kMostValues = 128;  // of a thread
  const int64_t cover = round_up(length, 16);
  for (const int64_t num_warps : {4, 8})
    for (const int64_t block_m : {16, 32, 64, 128})
      for (const int64_t block_n : {32, 64, 128, 256})
        for (const int64_t block_k : {32, 64})
          for (const int64_t num_stages : {2, 3, 4}) {
            const int64_t sums = block_m * block_n * s.weights_per_loop() / (32 * num_warps);
            if ((block_m > 16 && block_m / 2 >= cover) || sums < 4) continue;
            Tile tile{"mma", block_m, block_n, 16, 8, block_k, num_warps, num_stages};
            if (values_of_block(s, tile) > kMostValues * tile.threads()) continue;
            if (target.has_wgmma) tile.cluster = 1;
            collector.add(tile);
            if (!autotune::may_use_wgmma(target, s.dtype, block_m, num_warps) || length <= block_m) continue;
            tile.cluster = 2;
            collector.add(tile);
          }
}

/// Gives `parameter` each parameter of a configuration, by name. The tile has its form and whether it has a cluster.
void visit_parameters(auto& tile, const auto& parameter) {
  parameter("block_m", tile.block_m);
  parameter("block_n", tile.block_n);
  if (tile.is_of_gpu()) {
    parameter("block_k", tile.kc);
    parameter("num_warps", tile.num_warps);
    parameter("num_stages", tile.num_stages);
    if (tile.cluster) parameter("cluster", tile.cluster);
  } else {
    parameter("mr", tile.mr);
    parameter("nr", tile.nr);
    parameter("kc", tile.kc);
  }
}

}  // namespace

Tile Tile::from(const autotune::Config& c) {
  Tile tile{"mma", 0, 0, 16, 8, 0};
  tile.cluster = c.get_int("cluster", 0);
  if (!c.contains("block_k")) tile.form = c.get_string("form");
  visit_parameters(tile, [&](const char* name, int64_t& value) { value = c.get_int(name); });
  return tile;
}

autotune::Config Tile::config() const {
  autotune::Config c;
  if (!is_of_gpu()) c.set("form", form);
  visit_parameters(*this, [&](const char* name, int64_t value) { c.set(name, value); });
  return c;
}

SharedBytes::SharedBytes(const Linear& s, const Tile& t, std::optional<DType> result)
    : operands((t.block_m + t.block_n * s.weights_per_loop()) * t.kc * dtype_bytes(s.dtype) * t.num_stages) {
  constexpr int64_t kPadding = 112;
  results = t.block_m * (t.block_n * dtype_bytes(result.value_or(s.dtype)) + kPadding);
}

int64_t SharedBytes::sum() const {
  constexpr int64_t kBarriers = 1024;
  return operands + results + kBarriers;
}

int64_t values_of_block(const Linear& s, const Tile& t) {
  const int64_t columns = t.block_n * s.weights_per_loop();
  const int64_t operands = s.dtype == DType::f32 ? (t.block_m + columns) * t.kc : 0;
  return t.block_m * columns + operands;
}

Target portable(Target target) {
  target.has_wgmma = false;
  return target;
}

double busiest_thread(int64_t column_blocks, int64_t length, int64_t block_m, int threads) {
  const int64_t row_blocks = cdiv(length, block_m), programs = column_blocks * row_blocks;
  const double last = static_cast<double>(length - (row_blocks - 1) * block_m) / static_cast<double>(block_m);
  if (programs > 16 * int64_t{threads})  // the end hardly counts
    return static_cast<double>(column_blocks) * (static_cast<double>(row_blocks - 1) + last) / threads;
  // Threads that end together are one entry, so that many threads take few steps. The entries rise, by a block at most.
  struct End {
    double work;
    int64_t threads;
  };
  std::deque<End> ends{{0, threads}};
  const auto run = [&](int64_t count, double work) {
    while (count > 0) {
      const int64_t taken = std::min(count, ends.front().threads);
      const double end = ends.front().work + work;
      count -= taken;
      if ((ends.front().threads -= taken) == 0) ends.pop_front();
      auto at = ends.end();
      while (at != ends.begin() && std::prev(at)->work > end) --at;
      if (at != ends.begin() && std::prev(at)->work == end) std::prev(at)->threads += taken;
      else ends.insert(at, {end, taken});
    }
  };
  for (int64_t block = 0; block < column_blocks; ++block) {
    run(row_blocks - 1, 1);
    run(1, last);
  }
  return ends.back().work;
}

std::optional<std::string> refusal(const Linear& s, const Tile& t, int threads, const Target& target,
                                   std::optional<DType> result) {
  if (t.form == "mma") {
    if (s.is_packed()) return "packed weights are for CPUs";
    if (const int64_t needed = SharedBytes(s, t, result).sum(); needed > target.shared_bytes)
      return fmt::format("{} stages take {} B of shared memory, {} has {} B", t.num_stages, needed, target.name,
                         target.shared_bytes);
    return std::nullopt;
  }
  const bool is_matrix = t.form == "matrix";
  if (is_matrix)
    if (auto reason = matrix_refusal(s, t, target)) return reason;
  const int64_t needed = is_matrix ? matrix_registers(s, t) : registers(s, t, target);
  if (const int64_t exist = is_matrix ? kMatrixRegisters : target.num_vector_registers; needed > exist)
    return fmt::format("mr = {}, nr = {} needs {} registers, {} exist", t.mr, t.nr, needed, exist);
  if (t.block_n % t.nr) return fmt::format("block_n = {} is not a multiple of nr = {}", t.block_n, t.nr);
  const int64_t row_step = t.form == "transposed" || is_matrix ? target.lanes_f32() : t.mr;
  if (t.block_m % row_step) return fmt::format("block_m = {} is not a multiple of {}", t.block_m, row_step);
  if (packs_weights(s) && t.form != "outer" && !is_matrix)
    return "packed and transposed weights need form = outer or matrix";
  if (s.is_packed() && t.nr != s.panel) return fmt::format("nr = {} is not the weights' panel of {}", t.nr, s.panel);
  const int64_t room = target.l2_bytes + target.l3_bytes / (2 * std::max(threads, 1));
  if (const int64_t needed = scratch_bytes(s, t); needed > room)
    return fmt::format("the tiles take {} B, the caches have room for {} B", needed, room);
  return std::nullopt;
}

}  // namespace seqtile::kernels::linear_op

namespace seqtile::kernels {

using linear_op::Tile;

std::vector<Tile> Linear::tiles(const Setting& s, std::optional<DType> result) const {
  using namespace linear_op;
  const auto& [length, threads, target] = s;
  Collector collector(*this, threads, target, result);
  if (target.is_gpu()) {
    collect_mma(*this, length, target, collector);
    return collector.take();
  }
  constexpr int64_t kManyRows = 64;  // from here on no vectors come near matrix registers
  collect_matrix(*this, threads, length, target, collector);
  if (length >= kManyRows && !collector.empty()) return collector.take();
  collect_outer(*this, threads, length, target, collector);
  collect_transposed(*this, threads, length, target, collector);
  collect_dot(*this, threads, length, target, collector);
  return collector.take();
}

double Linear::predict_us(const Tile& t, const Setting& setting) const {
  using namespace linear_op;
  const auto& [length, threads, target] = setting;
  const Linear& s = *this;
  if (target.is_gpu()) return autotune::predict_us(gpu_work(t, setting), target.gpu);
  constexpr double kClockPerUs = 2.4e3, kPackedRow = 18, kProgramUs = 1;
  const bool is_outer = t.form == "outer", is_matrix = t.form == "matrix";
  const double lanes = target.lanes_f32(), weights = s.weights_per_loop();
  const auto padded = [](int64_t size, int64_t block, int64_t step) {  // of whole blocks and steps
    return static_cast<double>(size / block * block + round_up(size % block, step));
  };
  double columns = 0, bytes = 0;
  int64_t column_blocks = 0;
  for (const int64_t n : s.columns()) {
    columns += padded(n, t.block_n, t.nr) * weights;
    column_blocks += cdiv(n, t.block_n);
    bytes += static_cast<double>(n) * (weights * static_cast<double>(s.k) + static_cast<double>(length));
  }
  bytes = (bytes + static_cast<double>(length * s.k)) * static_cast<double>(dtype_bytes(s.dtype));
  const double rows = t.form == "transposed" ? panel_rows(t, length, target)
                                             : padded(length, t.block_m, is_matrix ? kMatrixRows : t.mr);
  const double block_rows = static_cast<double>(std::min(t.block_m, length));
  const double per_step = static_cast<double>(elements_per_step(s, target));
  const double steps = static_cast<double>(s.k) / per_step;
  double cycles = rows * columns * steps / (2 * lanes) * register_inefficiency(s, t, target);
  if (is_matrix) {
    cycles = matrix_cycles(s, t, rows, columns, target);
  } else if (is_outer) {
    const double packing =
        kPackedRow / (s.is_packed() ? 1e9 : block_rows) + kPackedRow / (static_cast<double>(t.block_n) * weights);
    const double spilled = s.k > t.kc ? 12 * per_step / static_cast<double>(t.kc) : 0;
    const double beyond_l2 = scratch_bytes(s, t) > target.l2_bytes ? 0.04 : 0;
    cycles *= 1 + packing + spilled + beyond_l2;
  } else if (t.form == "transposed") {
    const double panel_bytes = static_cast<double>(t.mr * std::min(t.kc, s.k) * 4) / per_step;
    const double beyond_l1 = panel_bytes > 2 * static_cast<double>(target.l1_bytes) ? 0.02 : 0;
    cycles *= 1 + kPackedRow / (static_cast<double>(t.block_n) * weights) + 6 * per_step / static_cast<double>(t.kc) +
              beyond_l1;
  } else {
    cycles *= 1 + 1.5 * lanes * per_step / static_cast<double>(t.kc);  // the sums along vectors
  }
  const int64_t programs = column_blocks * cdiv(length, t.block_m);
  const double blocks = static_cast<double>(column_blocks * length) / static_cast<double>(t.block_m);
  const double compute_us = cycles / blocks * busiest_thread(column_blocks, length, t.block_m, threads) / kClockPerUs;
  const double memory_us = bytes / (18e3 * std::min(threads, 4));
  constexpr double kExposed = 0.2;  // prefetches hide the rest
  return std::max(compute_us, memory_us) + kExposed * std::min(compute_us, memory_us) +
         kProgramUs * static_cast<double>(programs) / threads;
}

}  // namespace seqtile::kernels
