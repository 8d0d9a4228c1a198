// tests/models/golden_models_test.cpp -- small models run by our operations, against the transformers package.
// SPDX-License-Identifier: Apache-2.0
//
// tests/golden/models has the model file of each case and the float64 values of tools/python/make_model_goldens.py:
// hidden states before and behind every layer, the normed states behind the last one, and the logits.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "autotune/call/call_values.h"
#include "models/file/model_file.h"
#include "models/layers/model_graph.h"
#include "models/layers/model_runner.h"
#include "planner/graph/shared_parameters.h"
#include "seqtile/engine.h"
#include "seqtile/error.h"
#include "seqtile/operations.h"
#include "tests/support/kernels/compiled.h"
#include "tests/support/temp_folder.h"

namespace seqtile::testing {
namespace {

using models::Model;
using models::ModelRunner;
using models::ModelTensor;
using Json = nlohmann::json;

constexpr double kMostError = 1e-5;

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A case of the script: its header, and the rows of each tensor.
struct GoldenModel {
  explicit GoldenModel(const std::filesystem::path& path)
      : header(Json::parse(bytes_of(path))), data(bytes_of(std::filesystem::path(path).replace_extension(".f32"))) {}

  /// [tokens, columns], dense.
  Tensor tensor(const std::string& name) {
    const Json& entry = header.at("tensors").at(name);
    const auto tokens = static_cast<int64_t>(header.at("ids").size()), columns = entry.at("columns").get<int64_t>();
    return make_tensor(data.data() + entry.at("offset").get<size_t>(), DType::f32, {tokens, columns});
  }

  Json header;
  std::string data;
};

std::vector<std::filesystem::path> golden_paths() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(SEQTILE_SOURCE_DIR "/tests/golden/models"))
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  std::ranges::sort(paths);
  REQUIRE(paths.size() >= 20);
  return paths;
}

/// SplitMix64 (Steele, Lea, Flood 2014), seeded by the FNV-1a hash of the name, as parameter() of the script.
class ParameterValues {
 public:
  explicit ParameterValues(const std::string& name)
      : is_norm_(name.find("norm") != std::string::npos && name.ends_with(".weight")),
        is_embedding_(name.find("embed_tokens") != std::string::npos) {
    for (const char c : name) state_ = (state_ ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  double next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    const double u = static_cast<double>((z ^ (z >> 31)) >> 40) * 0x1p-23 - 1;
    return is_norm_ ? 1 + u / 4 : is_embedding_ ? u : u / 4;
  }

 private:
  bool is_norm_, is_embedding_;
  uint64_t state_ = 0xcbf29ce484222325u;
};

/// Parameters in the shapes of Hugging Face's module tree, made at their first use.
class Parameters {
 public:
  explicit Parameters(const Model& model) : model_(model) {}

  Tensor operator()(const std::string& name) {
    const auto [place, is_new] = tensors_.try_emplace(name);
    const auto [rows, columns] = shape_of(name);
    if (is_new) {
      place->second = ModelTensor(DType::f32, rows, columns);
      auto* values = static_cast<float*>(place->second.tensor().data);
      ParameterValues source(name);
      for (int64_t i = 0; i < rows * columns; ++i) values[i] = static_cast<float>(source.next());
    }
    return place->second.tensor();
  }

 private:
  std::pair<int64_t, int64_t> shape_of(const std::string& name) const {
    const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
    const int64_t hidden = model_.hidden_size, q = model_.heads * model_.head_dim,
                  kv = model_.kv_heads * model_.head_dim, wide = model_.intermediate_size;
    const bool by_head = model_.head_norm == models::HeadNorm::each_head;
    if (is("q_norm")) return {1, by_head ? model_.head_dim : q};
    if (is("k_norm")) return {1, by_head ? model_.head_dim : kv};
    if (is("norm")) return {1, hidden};
    const int64_t rows = is("embed_tokens") || is("lm_head")              ? model_.vocab_size
                         : is("qkv_proj")                                 ? q + 2 * kv
                         : is("q_proj")                                   ? q
                         : is("k_proj") || is("v_proj")                   ? kv
                         : is("gate_up_proj")                             ? 2 * wide
                         : is("gate_proj") || is("up_proj") || is("c_fc") ? wide
                                                                          : hidden;
    if (name.ends_with(".bias")) return {1, rows};
    return {rows, is("o_proj") ? q : is("down_proj") || is("c_proj") ? wide : hidden};
  }

  const Model& model_;
  std::map<std::string, ModelTensor> tensors_;
};

/// The largest error of an element, relative to the larger of the element and its row's root mean square, and of a row,
/// relative to the row's norm.
struct Errors {
  double element = 0, row = 0;

  void take(const Tensor& got, const Tensor& want, int64_t first) {
    REQUIRE(got.sizes[1] == want.sizes[1]);
    for (int64_t i = 0; i < got.sizes[0]; ++i) {
      const std::vector<double> a = read_row(got, i), b = read_row(want, first + i);
      double squares = 0, off = 0;
      for (size_t c = 0; c < b.size(); ++c) squares += b[c] * b[c], off += (a[c] - b[c]) * (a[c] - b[c]);
      element = std::max(element, autotune::compare(a, b, {1, 1}).relative);
      row = std::max(row, std::sqrt(off / squares));
    }
  }
};

Errors errors_of(GoldenModel& golden, const Model& model, Engine& engine) {
  const auto ids = golden.header.at("ids").get<std::vector<int32_t>>();
  Parameters parameters(model);
  ModelRunner runner(engine, model, std::ref(parameters), static_cast<int64_t>(ids.size()));
  Errors errors;
  int64_t first = 0;
  for (const int64_t tokens : golden.header.at("calls").get<std::vector<int64_t>>()) {
    int depth = 0;
    runner.run({ids.data() + first, static_cast<size_t>(tokens)}, [&](const Tensor& hidden) {
      errors.take(hidden, golden.tensor(fmt::format("hidden.{}", depth++)), first);
    });
    REQUIRE(depth == model.layers + 1);
    errors.take(runner.buffer("result_normed"), golden.tensor("normed"), first);
    errors.take(runner.buffer("logits"), golden.tensor("logits"), first);
    first += tokens;
  }
  return errors;
}

}  // namespace

TEST_CASE("golden models: every type and form of rope is what transformers computes", "[models][golden]") {
  test::TempFolder folder;
  const autotune::Registry registry = kernels::make_registry();
  const auto engine = Engine::open({.threads = 1,
                                    .cache = folder.file("tuning.db"),
                                    .artifacts = testing::shared_artifacts(),
                                    .policy = MissPolicy::fallback},
                                   registry);
  std::string table = "case, transformers, torch, largest error of an element, of a row\n";
  for (const auto& path : golden_paths()) {
    GoldenModel golden(path);
    const std::string name = path.stem().string();
    INFO(name);
    Errors errors;
    try {
      errors = errors_of(golden, models::parse_model(golden.header.at("config").dump(), name), *engine);
    } catch (const Error& error) {
      FAIL_CHECK(error.what());
      continue;
    }
    CHECK(errors.element < kMostError);
    CHECK(errors.row < kMostError);
    const Json& versions = golden.header.at("versions");
    table += fmt::format("{:18} {} {} {:.1e} {:.1e}\n", name, versions.at("transformers").get<std::string>(),
                         versions.at("torch").get<std::string>(), errors.element, errors.row);
  }
  std::cout << table;
}

TEST_CASE("golden models: a call that failed leaves no rows behind", "[models][golden]") {
  test::TempFolder folder;
  const autotune::Registry registry = kernels::make_registry();
  const auto engine = Engine::open({.threads = 1,
                                    .cache = folder.file("tuning.db"),
                                    .artifacts = testing::shared_artifacts(),
                                    .policy = MissPolicy::fallback},
                                   registry);
  const GoldenModel golden(SEQTILE_SOURCE_DIR "/tests/golden/models/llama.json");
  const Model model = models::parse_model(golden.header.at("config").dump(), "llama");
  Parameters parameters(model);
  const auto logits = [&](bool fails) {
    const std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6};
    ModelRunner runner(*engine, model, std::ref(parameters), 6);
    const auto fail = [](const Tensor&) { throw Error(ErrorCode::invalid_argument, "seen"); };
    if (fails) CHECK_THROWS_AS(runner.run({ids.data(), 4}, fail), Error);
    runner.run({ids.data(), 4});
    if (fails) CHECK_THROWS_AS(runner.run({ids.data() + 4, 2}, fail), Error);
    runner.run({ids.data() + 4, 2});
    return read_row(runner.buffer("logits"), 1);
  };
  CHECK(logits(true) == logits(false));
}

TEST_CASE("golden models: their graphs have all parameters that transformers has", "[models][golden][plan]") {
  for (const auto& path : golden_paths()) {
    INFO(path.string());
    const GoldenModel golden(path);
    const Model model = models::parse_model(golden.header.at("config").dump(), path.string());
    const planner::Graph graph = models::model_graph(model, {.mesh = {1, {1}, {1}, {1}}});
    CHECK(planner::count_parameters(graph) == golden.header.at("parameters").get<double>());
  }
}

}  // namespace seqtile::testing
