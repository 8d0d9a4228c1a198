// tests/support/fakes/toy_ops.cpp -- see toy_ops.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fakes/toy_ops.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "jit/abi/channel_block.h"
#include "seqtile/abi.h"
#include "seqtile/builder.h"
#include "seqtile/error.h"

namespace seqtile::test {
namespace {

using namespace autotune;

std::vector<Config> listed(const std::string& forms) {
  std::vector<Config> configs;
  std::istringstream in(forms);
  for (std::string form; std::getline(in, form, ',');) {
    const size_t slash = form.find('/');
    if (slash != std::string::npos) {
      configs.push_back({{"form", form.substr(0, slash)}, {"block", int64_t{std::stoi(form.substr(slash + 1))}}});
    } else {
      for (const int64_t block : {4, 16}) configs.push_back({{"form", form}, {"block", block}});
    }
  }
  return configs;
}

[[noreturn]] void spin() {
  volatile bool is_over = false;
  while (!is_over) {
  }
  std::abort();
}

void misbehave_at_build_time(const std::string& form) {
  if (form == "build_abort") std::abort();
  if (form == "build_hang") spin();
  if (form == "build_throw") throw Error(ErrorCode::compile_failed, "this form cannot be built");
  if (form == "build_memory") {
    std::vector<std::vector<char>> held;
    while (true) held.emplace_back(size_t{64} << 20, 'x');
  }
}

/// Stores y for the form: x + 1, and the form's fault.
void store_rows(KernelBuilder& b, const std::string& form, Var x, Var y, Var row, int64_t block, int64_t n, Var tally) {
  const Var rows = b.load(x, {row, 0}, {block, n});
  if (form == "unwritten") {
    b.store(y, {row, 0}, b.load(x, {row, 0}, {block, n / 2}) + 1.0);
  } else if (form == "wrong") {
    b.store(y, {row, 0}, rows + 1.5);
  } else if (form == "infinite") {
    b.store(y, {row, 0}, (rows + 1e30) * 1e30);
  } else if (form == "wrong_tail") {
    const Var extra = b.cast(
        b.select(row >= 256, b.constant(DType::i64, int64_t{1}), b.constant(DType::i64, int64_t{0})), DType::f32);
    b.store(y, {row, 0}, rows + 1.0 + b.full({block, n}, extra));
  } else if (form == "dirty") {
    const Var seen = b.load_scalar(tally, {b.program_id(0)});
    b.store_scalar(tally, {b.program_id(0)}, seen + 1.0);
    b.store(y, {row, 0}, rows + 1.0 + b.full({block, n}, seen));
  } else if (form == "slow" || form == "late") {  // "late" takes longer than the noise of ranks that share busy cores
    b.for_loop(0, form == "late" ? 100'000 : 1000, 1, {}, [&](Var, std::vector<Var>) {
      b.store(y, {row, 0}, b.load(x, {row, 0}, {block, n}) + 1.0);
      return std::vector<Var>{};
    });
  } else {
    b.store(y, {row, 0}, rows + 1.0);
  }
}

void never_end(KernelBuilder& b, Var y) {
  b.while_loop(
      {b.constant(DType::i64, int64_t{0})},
      [&](std::vector<Var> c) {
        b.store_scalar(y, {0, 0}, b.cast(c[0], DType::f32));
        return c[0] >= 0;
      },
      [&](std::vector<Var> c) { return std::vector{b.binary(ir::OpKind::bit_and, c[0] + 1, int64_t{1023})}; });
}

void build(KernelBuilder& b, const Workload& w, const Config& config, const Target&) {
  const int64_t n = w.fields.get_int("n"), block = config.get_int("block");
  const std::string form = config.get_string("form");
  misbehave_at_build_time(form);
  const Var x = b.view("x", DType::f32, {kDynamic, n});
  const Var y = b.view("y", DType::f32, {kDynamic, n});
  const Var tally = form == "dirty" ? b.view("tally", DType::f32, {kDynamic}) : Var();
  const Var row = b.program_id(0) * block;
  store_rows(b, form, x, y, row, block, n, tally);
  const auto in_first_program = [&](auto&& act) {
    b.if_then(b.compare(Compare::eq, b.program_id(0), 0), [&] {
      act();
      return std::vector<Var>{};
    });
  };
  if (form == "oob") in_first_program([&] { b.store_scalar(y, {b.size(y, 0), 0}, b.constant(DType::f32, 7.0)); });
  if (form == "under") in_first_program([&] { b.store_scalar(y, {-1, 0}, b.constant(DType::f32, 7.0)); });
  if (form == "segfault") b.store_scalar(y, {int64_t{1} << 40, 0}, b.constant(DType::f32, 7.0));
  if (form == "hang") never_end(b, y);
  if (form == "no_verify") b.store(x, {row}, b.full({block, n}, 0.0));
}

void build_ranks(KernelBuilder& b, const Workload& w, const Config& config, const Target&) {
  const int64_t n = w.fields.get_int("n"), block = config.get_int("block");
  const std::string form = config.get_string("form");
  const Var x = b.view("x", DType::f32, {kDynamic, n}), y = b.view("y", DType::f32, {kDynamic, n});
  b.view("staging", DType::i8, {kDynamic});
  b.view("flags", DType::i64, {kDynamic});
  const Var channel = b.view("channel", DType::i64, {channel::num_words});
  const Var row = b.program_id(0) * block;
  const Var is_rank_1 = b.compare(Compare::eq, b.load_scalar(channel, {int64_t{channel::rank}}), 1);
  b.when(is_rank_1, [&] {
    if (form == "dies") b.store_scalar(y, {int64_t{1} << 40, 0}, b.constant(DType::f32, 7.0));
    if (form == "stays") never_end(b, y);
    if (form == "late") store_rows(b, form, x, y, row, block, n, Var());
  });
  store_rows(b, "plain", x, y, row, block, n, Var());
}

void reference(const Problem& problem, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Tensor& x = problem.tensors[0];
  outputs.assign(1, {});
  for (const int64_t row : rows)
    for (int64_t i = 0; i < x.sizes[1]; ++i)
      outputs[0].push_back(double{static_cast<const float*>(x.data)[row * x.strides[0] + i]} + 1);
}

}  // namespace

Workload toy_add(const std::string& forms, int64_t n) {
  return {"toy_add", DType::f32, 1, {{"n", n}, {"forms", forms}}};
}

OpDef toy_add_op(int64_t version) {
  OpDef op;
  op.name = "toy_add";
  op.version = version;
  op.summary = "y = x + 1, or something else";
  op.normalize = [](const Workload& w) { return w; };
  op.schema = [](const Workload& w) {
    const int64_t n = w.fields.get_int("n");
    return Schema{{"length"},
                  {{"x", ArgRole::input, DType::f32, {"length", n}}, {"y", ArgRole::output, DType::f32, {"length", n}}},
                  {}};
  };
  op.config_space = [](const Workload& w, int64_t, const Target&) {
    ConfigSpace space;
    for (const Config& config : listed(w.fields.get_string("forms"))) space.add(config);
    return space;
  };
  op.default_config = [](const Workload& w, int64_t, const Target&) { return listed(w.fields.get_string("forms"))[0]; };
  op.build = build;
  op.grid = [](const Workload&, const Config& config) {
    return std::array<SizeExpr, 3>{SizeExpr{1, {{0, config.get_int("block"), 0}}}, SizeExpr{}, SizeExpr{}};
  };
  op.workspaces = [](const Workload&, const Config& config) {
    if (config.get_string("form") != "dirty") return std::vector<Workspace>{};
    return std::vector<Workspace>{{"tally", DType::f32, SizeExpr{1, {{0, config.get_int("block"), 0}}}}};
  };
  op.cost = [](const Workload& w, std::span<const int64_t> symbols) {
    const double elements = static_cast<double>(symbols[0] * w.fields.get_int("n"));
    return Cost{elements, 4 * elements, 4 * elements};
  };
  op.predict_us = [](const Workload& w, const Config& config, int64_t, const Target&) {
    const auto configs = listed(w.fields.get_string("forms"));
    return static_cast<double>(std::find(configs.begin(), configs.end(), config) - configs.begin());
  };
  op.reference = reference;
  op.tolerance = [](const Workload&, std::span<const int64_t>) { return OpDef::Tolerance{1e-6, 1e-6}; };
  return op;
}

Workload toy_ranks(const std::string& forms, const std::string& fabric, int world_size) {
  Workload workload = toy_add(forms);
  workload.operation = "toy_ranks";
  workload.fields.set("fabric", fabric);
  workload.fields.set("world_size", int64_t{world_size});
  return workload;
}

OpDef toy_ranks_op() {
  OpDef op = toy_add_op();
  op.name = "toy_ranks";
  op.schema = [plain = op.schema](const Workload& w) {
    Schema schema = plain(w);
    schema.symbols.insert(schema.symbols.end(), {"staging_bytes", "flag_words"});
    schema.args.push_back({"staging", ArgRole::input, DType::i8, {"staging_bytes"}});
    schema.args.push_back({"flags", ArgRole::input, DType::i64, {"flag_words"}});
    schema.args.push_back({.name = "channel", .dtype = DType::i64, .dims = {int64_t{channel::num_words}}});
    return schema;
  };
  op.symbols = [](const Workload&, int64_t length) { return std::vector<int64_t>{length, 64, 8}; };
  op.on_rank = [](const Workload& w, int, int64_t length) {
    return RankCall{static_cast<int>(w.fields.get_int("world_size")),
                    w.fields.get_string("fabric"),
                    {.capacity = length, .staging_bytes = 64},
                    {length, 64, 8}};
  };
  op.build = build_ranks;
  op.workspaces = nullptr;
  return op;
}

Registry toy_registry() {
  Registry registry;
  registry.add(toy_add_op());
  registry.add(toy_ranks_op());
  return registry;
}

}  // namespace seqtile::test
