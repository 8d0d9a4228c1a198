// tests/c_api/c_api_test.cpp -- calls through the C interface: the bits of the C++ handle, refusals, lifetimes, log.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <dlfcn.h>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "seqtile/operations.h"
#include "tests/c_api/c_api_support.h"
#include "tests/support/temp_folder.h"

using namespace seqtile;
using namespace seqtile::test;
using Json = nlohmann::json;

namespace {

/// An engine on stores of its own, which are empty.
struct World {
  TempFolder folder;
  EnginePtr engine;

  std::string options(const std::string& more = "") const {
    return R"({"threads": 2, "cache": ")" + folder.file("tuning.db") + R"(", "artifacts": ")" +
           folder.file("artifacts.db") + '"' + more + "}";
  }
  World() {
    seqtile_engine* opened = nullptr;
    REQUIRE(seqtile_engine_open(options().c_str(), &opened) == SEQTILE_OK);
    engine.reset(opened);
  }
  OpPtr prepare(const char* operation, const char* fields) const {
    seqtile_op* op = nullptr;
    INFO(operation << fields);
    const seqtile_status status = seqtile_engine_prepare(engine.get(), operation, fields, &op);
    INFO(seqtile_last_error());
    REQUIRE(status == SEQTILE_OK);
    return OpPtr(op);
  }
  EngineOptions cpp_options() const {
    return {.threads = 2, .cache = folder.file("tuning.db"), .artifacts = folder.file("artifacts.db")};
  }
};

template <size_t N>
seqtile_status call(const OpPtr& op, const std::array<const DLTensor*, N>& tensors,
                    int64_t length = SEQTILE_LENGTH_OF_TENSORS) {
  return seqtile_op_call(op.get(), tensors.data(), static_cast<int32_t>(N), length, nullptr);
}

/// The bytes of `count` generated elements.
std::vector<std::byte> generated(DType dtype, int64_t count, uint64_t seed) {
  std::vector<std::byte> bytes(static_cast<size_t>(count * dtype_bytes(dtype)));
  fill_normal(make_tensor(bytes.data(), dtype, {count}), 0, 1, seed);
  return bytes;
}

constexpr std::byte kPoison{0xA5};

/// Threads of this process that are workers of the library's own pools. A new worker is counted when it has run a
/// moment.
int64_t workers_of_our_own() {
  int64_t count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(thread.path() / "comm"), name);
    count += name.starts_with("seqtile-");
  }
  return count;
}

/// Whether there are so many of them, now or within a minute.
bool come_to(int64_t count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (workers_of_our_own() != count)
    if (std::chrono::steady_clock::now() > end) return false;
    else std::this_thread::yield();
  return true;
}

}  // namespace

TEST_CASE("a call gives the bits of the C++ handle, in every dtype and stride", "[fast]") {
  const World world;
  const struct {
    DType dtype;
    const char* name;
    DLDataType dl;
  } kTypes[] = {{DType::f32, "f32", kF32}, {DType::bf16, "bf16", kBf16}, {DType::f16, "f16", kF16}};
  constexpr int64_t kN = 40, kK = 24, kPitch = 29, kRows = 7, kOffset = 3;
  const auto cpp = open_engine(world.cpp_options());
  for (const auto& type : kTypes) {
    CAPTURE(type.name);
    const auto op = world.prepare("linear", (R"({"n": 40, "k": 24, "bias": true, "activation": "silu", "dtype": ")" +
                                             std::string(type.name) + "\"}")
                                                .c_str());
    const auto handle = cpp->prepare(
        kernels::Linear{.n = kN, .k = kK, .bias = true, .activation = kernels::Activation::silu, .dtype = type.dtype});
    auto x = generated(type.dtype, kRows * kPitch + kOffset, 1), w = generated(type.dtype, kN * kK, 2);
    auto bias = generated(type.dtype, kN, 3);
    const auto bytes = static_cast<size_t>(kRows * kN * dtype_bytes(type.dtype));
    std::vector<std::byte> want(bytes, kPoison), got(bytes, kPoison);

    const auto element = static_cast<size_t>(dtype_bytes(type.dtype));
    Tensor rows = make_tensor(x.data() + kOffset * element, type.dtype, {kRows, kK});
    rows.strides[0] = kPitch;
    handle({.x = rows,
            .w = make_tensor(w.data(), type.dtype, {kN, kK}),
            .bias = make_tensor(bias.data(), type.dtype, {kN}),
            .y = make_tensor(want.data(), type.dtype, {kRows, kN})});

    Dl dx(x.data(), type.dl, {kRows, kK}, {kPitch, 1});
    dx.tensor.byte_offset = kOffset * element;
    const Dl dw(w.data(), type.dl, {kN, kK}), db(bias.data(), type.dl, {kN}), dy(got.data(), type.dl, {kRows, kN});
    REQUIRE(call<4>(op, {dx, dw, db, dy}) == SEQTILE_OK);
    CHECK(got == want);
  }
}

TEST_CASE("a call of no rows does nothing where nothing would be written", "[fast]") {
  const World world;
  const auto op = world.prepare("softmax", R"({"n": 16})");
  const Dl x(nullptr, kF32, {0, 16}), y(nullptr, kF32, {0, 16});
  CHECK(call<2>(op, {x, y}) == SEQTILE_OK);
  CHECK(call<2>(op, {x, y}, 0) == SEQTILE_OK);
  CHECK(call<2>(op, {Dl(nullptr, kF32, {0, 16}, {0, 0}), y}) == SEQTILE_OK);  // as NumPy gives it

  // A gradient has its sum to write at any length: no rows would leave it as it is.
  const auto wgrad = world.prepare("linear_wgrad", R"({"n": 8, "k": 4})");
  std::vector<float> sum(32, 7);
  const Dl dy(nullptr, kF32, {0, 8}), rows(nullptr, kF32, {0, 4}), dw(sum.data(), kF32, {8, 4});
  CHECK(call<3>(wgrad, {dy, rows, dw}) == SEQTILE_INVALID_ARGUMENT);
  CHECK_THAT(seqtile_last_error(), Catch::Contains("length is 0; it must be at least 1"));
  CHECK(std::ranges::count(sum, 7.0f) == 32);
}

TEST_CASE("every text is JSON that says what it is documented to say", "[fast]") {
  const World world;
  char* text = nullptr;
  REQUIRE(seqtile_operations(&text) == SEQTILE_OK);
  const Json operations = Json::parse(text_of(text));
  CHECK(operations.size() == kernels::make_registry().ops().size());
  CHECK(std::ranges::any_of(operations, [](const Json& op) {
    return op["operation"] == "linear" && !op["over_ranks"] && op["fields"][0].contains("values");
  }));

  const auto op = world.prepare("attention_forward", R"({"heads": 4, "kv_heads": 2, "head_dim": 16, "dtype": "bf16"})");
  REQUIRE(seqtile_op_describe(op.get(), &text) == SEQTILE_OK);
  const Json described = Json::parse(text_of(text));
  CHECK(described["operation"] == "attention_forward");
  CHECK(described["dtype"] == "bf16");
  CHECK(described["fields"]["head_dim"] == 16);
  const Json& tensors = described["tensors"];
  CHECK(tensors[0]["name"] == "q");
  CHECK(tensors[3]["shape"][0] == "batch + 1");
  CHECK(tensors[3]["dtype"] == "i32");
  CHECK(tensors.back()["role"] == "output");
  const auto norm = world.prepare("rms_norm", R"({"n": 4})");
  REQUIRE(seqtile_op_describe(norm.get(), &text) == SEQTILE_OK);
  CHECK(Json::parse(text_of(text))["tensors"][2]["in_place"] == Json::array({"x"}));

  REQUIRE(seqtile_op_explain(op.get(), 100, &text) == SEQTILE_OK);
  const Json explained = Json::parse(text_of(text));
  CHECK(explained["bucket"] == Json::array({97, 104}));
  CHECK(explained["origin"] == "default");
  CHECK(explained["config"].is_object());

  REQUIRE(seqtile_engine_counters(world.engine.get(), &text) == SEQTILE_OK);
  CHECK(Json::parse(text_of(text))["launches"] == 0);
}

TEST_CASE("bad input is a status and one line, and writes nothing", "[fast]") {
  const World world;
  const auto op = world.prepare("softmax", R"({"n": 4})");
  std::vector<float> in(8, 1), out(8, 7);
  const Dl x(in.data(), kF32, {2, 4}), y(out.data(), kF32, {2, 4});
  const auto refused = [&](const DLTensor* first, const DLTensor* second, const char* words) {
    CAPTURE(words);
    CHECK(call<2>(op, {first, second}) == SEQTILE_INVALID_ARGUMENT);
    CHECK_THAT(seqtile_last_error(), Catch::Contains(words));
    CHECK_THAT(seqtile_last_error(), Catch::StartsWith("softmax: ") && !Catch::Contains("\n"));
    CHECK(std::ranges::count(out, 7.0f) == 8);
  };
  refused(nullptr, y, "argument 0 'x': the tensor is null");
  refused(Dl(in.data(), kF32, {2, 5}), y, "argument 0 'x': size of dimension 1 is 5, 4 expected");
  refused(Dl(in.data(), kF32, {8}), y, "argument 0 'x': rank is 1, 2 expected");
  refused(Dl(in.data(), kF32, {1, 1, 1, 2, 4}), y, "argument 0 'x': rank is 5, 2 expected");
  refused(Dl(in.data(), kF32, {-1, 4}), y, "argument 0 'x': size of dimension 0 is -1");
  refused(Dl(in.data(), kF16, {2, 4}), y, "argument 0 'x': dtype is f16, f32 expected");
  refused(Dl(in.data(), {kDLFloat, 8, 1}, {2, 4}), y, "argument 0 'x': dtype is float8, f32 expected");
  refused(Dl(in.data(), {kDLFloat, 32, 4}, {2, 4}), y, "argument 0 'x': dtype is float32 x 4, f32 expected");
  refused(Dl(in.data(), {77, 32, 1}, {2, 4}), y, "argument 0 'x': dtype is code 77, 32, f32 expected");
  refused(Dl(nullptr, kF32, {2, 4}), y, "argument 0 'x': data is null");
  refused(Dl(in.data(), kF32, {2, 4}, {1, 2}), y, "argument 0 'x': innermost stride is 2, 1 expected");
  refused(Dl(in.data(), kF32, {int64_t{1} << 40, int64_t{1} << 40}), y, "argument 0 'x': ");
  refused(Dl(out.data(), kF32, {2, 4}), Dl(out.data() + 1, kF32, {1, 4}),
          "argument 1 'y': size of dimension 0 is 1, 2");
  Dl shapeless(in.data(), kF32, {2, 4}), elsewhere(in.data(), kF32, {2, 4}), unaligned(in.data(), kF32, {1, 4});
  shapeless.tensor.shape = nullptr;
  refused(shapeless, y, "argument 0 'x': shape is null");
  elsewhere.tensor.device = {kDLCUDA, 1};
  refused(elsewhere, y, "argument 0 'x': data is on cuda:1, the engine's device is the CPU");
  unaligned.tensor.byte_offset = 2;
  refused(unaligned, y, "alignment expected");

  CHECK(call<1>(op, {x}) == SEQTILE_INVALID_ARGUMENT);
  CHECK_THAT(seqtile_last_error(), Catch::Contains("softmax: 1 tensor given, 2 expected: x, y"));
  CHECK(call<2>(op, {x, y}, 3) == SEQTILE_INVALID_ARGUMENT);
  CHECK_THAT(seqtile_last_error(), Catch::Contains("size of dimension 0 is 2, 3 expected"));
  CHECK(seqtile_op_call(op.get(), nullptr, 2, 2, nullptr) == SEQTILE_INVALID_ARGUMENT);
  CHECK(seqtile_op_call(op.get(), nullptr, -1, 2, nullptr) == SEQTILE_INVALID_ARGUMENT);
  CHECK(seqtile_op_call(nullptr, nullptr, 0, 2, nullptr) == SEQTILE_INVALID_ARGUMENT);
  CHECK_THAT(seqtile_last_error(), Catch::Equals("op is null"));
  CHECK(seqtile_op_explain(op.get(), 0, nullptr) == SEQTILE_INVALID_ARGUMENT);
  char* text = nullptr;
  CHECK(seqtile_op_explain(op.get(), 0, &text) == SEQTILE_INVALID_ARGUMENT);
  CHECK(text == nullptr);
  REQUIRE(call<2>(op, {x, y}) == SEQTILE_OK);
  CHECK(out[0] == Approx(0.25));
}

TEST_CASE("options and fields that are wrong are named", "[fast]") {
  const World world;
  const auto refuses_options = [](const char* options, const char* words) {
    CAPTURE(options);
    auto* engine = reinterpret_cast<seqtile_engine*>(0x1);
    CHECK(seqtile_engine_open(options, &engine) == SEQTILE_INVALID_ARGUMENT);
    CHECK(engine == nullptr);
    CHECK_THAT(seqtile_last_error(), Catch::Contains(words) && !Catch::Contains("\n"));
  };
  refuses_options("{\"thread\": 2}",
                  "unknown option \"thread\"; there are: artifacts, cache, device, max_length, "
                  "pinned, policy, pool, system_caches, threads; did you mean threads?");
  refuses_options("{\"threads\": \"2\"}", "option \"threads\" is \"2\"; give a whole number");
  refuses_options("{\"threads\": -1}", "threads is -1");
  refuses_options("{\"threads\": 5000000000}", "threads is 5000000000");
  refuses_options("{\"cache\": 1}", "option \"cache\" is 1; give a text");
  refuses_options("{\"system_caches\": \"a.db\"}", "option \"system_caches\" is \"a.db\"; give an array of paths");
  refuses_options("{\"policy\": \"neares\"}", "did you mean nearest?");
  refuses_options("{\"pool\": \"openmpi\"}", "unknown pool \"openmpi\"; there are: own, openmp, auto; did you mean");
  refuses_options("{\"threads\": 1, \"threads\": 2}", "stands twice");
  refuses_options("{\"cache\": \"a\\u0000b\"}", "option \"cache\" has a zero byte in its text");
  refuses_options("[]", "options is an array; give an object of names and values");
  refuses_options("{\"threads\": 2", "options");
  CHECK(seqtile_engine_open("{}", nullptr) == SEQTILE_INVALID_ARGUMENT);
  seqtile_engine* engine = nullptr;
  CHECK(seqtile_engine_open("{\"device\": \"cuda:99\"}", &engine) == SEQTILE_UNSUPPORTED);

  const auto refuses_fields = [&](const char* operation, const char* fields, const char* words) {
    CAPTURE(operation, fields);
    seqtile_op* op = nullptr;
    CHECK(seqtile_engine_prepare(world.engine.get(), operation, fields, &op) == SEQTILE_INVALID_ARGUMENT);
    CHECK(op == nullptr);
    CHECK_THAT(seqtile_last_error(), Catch::Contains(words));
  };
  refuses_fields("linaer", "{}", "did you mean linear?");
  refuses_fields("linear", "{\"n\": 8}", "k");
  refuses_fields("linear", "{\"n\": 8, \"k\": [8]}", "k");
  refuses_fields("softmax", "{\"n\": 8, \"dtype\": \"f31\"}", "dtype is \"f31\"; there are: f32, bf16, f16");
  refuses_fields("softmax", "{\"n\": 8, \"dtype\": 1}", "dtype is 1");
  refuses_fields("softmax", "{\"n\": 0}", "n");
  refuses_fields(nullptr, "{}", "operation is null");
  refuses_fields("all_gather", "{\"n\": 8}", "all_gather is an operation over ranks");
}

TEST_CASE("calls run on the pool that the options name", "[fast]") {
  const World world;
  const auto gives_a_quarter = [&](const char* pool, bool is_own) {
    CAPTURE(pool);
    REQUIRE(come_to(1));  // the worker of the world's engine is there, those of the engine before are gone
    seqtile_engine* opened = nullptr;
    REQUIRE(seqtile_engine_open(world.options(std::string(R"(, "pool": ")") + pool + '"').c_str(), &opened) ==
            SEQTILE_OK);
    const EnginePtr engine(opened);
    seqtile_op* prepared = nullptr;
    REQUIRE(seqtile_engine_prepare(engine.get(), "softmax", R"({"n": 4})", &prepared) == SEQTILE_OK);
    const OpPtr op(prepared);
    std::vector<float> in(4000, 1), out(4000, 7);
    const Dl x(in.data(), kF32, {1000, 4}), y(out.data(), kF32, {1000, 4});
    CHECK(call<2>(op, {x, y}) == SEQTILE_OK);
    CHECK(std::ranges::count(out, 0.25f) == 4000);
    CHECK(come_to(is_own ? 2 : 1));
  };
  gives_a_quarter("own", true);
  gives_a_quarter("auto", !has_openmp());
  if (!has_openmp()) {
    seqtile_engine* none = nullptr;
    CHECK(seqtile_engine_open(R"({"pool": "openmp"})", &none) == SEQTILE_UNSUPPORTED);
    CHECK_THAT(seqtile_last_error(), Catch::Contains("libgomp"));
  }
  if (dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL)) {
    gives_a_quarter("openmp", false);
    gives_a_quarter("auto", false);
  } else {
    WARN("no libgomp.so.1 on this machine");
  }
}

TEST_CASE("a strict engine says what is missing", "[fast]") {
  const World world;
  seqtile_engine* opened = nullptr;
  REQUIRE(seqtile_engine_open(world.options(R"(, "policy": "strict")").c_str(), &opened) == SEQTILE_OK);
  const EnginePtr strict(opened);
  seqtile_op* prepared = nullptr;
  REQUIRE(seqtile_engine_prepare(strict.get(), "softmax", R"({"n": 4})", &prepared) == SEQTILE_OK);
  const OpPtr op(prepared);
  std::vector<float> in(8, 1), out(8, 7);
  const Dl x(in.data(), kF32, {2, 4}), y(out.data(), kF32, {2, 4});
  CHECK(call<2>(op, {x, y}) == SEQTILE_NO_RECORD);
  CHECK_THAT(seqtile_last_error(), Catch::Contains("seqtile tune softmax --set n=4"));
  CHECK(std::string(seqtile_status_name(SEQTILE_NO_RECORD)) == "no_record");
}

TEST_CASE("what calls have missed is written by operation and length", "[fast]") {
  const World world;
  const auto softmax = world.prepare("softmax", R"({"n": 4})"), norm = world.prepare("rms_norm", R"({"n": 4})");
  std::vector<float> in(800, 1), out(800, 7);
  for (const int64_t rows : {3, 4, 200, 4}) {
    const Dl x(in.data(), kF32, {rows, 4}), y(out.data(), kF32, {rows, 4});
    REQUIRE(call<2>(softmax, {x, y}) == SEQTILE_OK);
  }
  const std::string path = world.folder.file("misses.json");
  REQUIRE(seqtile_engine_write_misses(world.engine.get(), path.c_str()) == SEQTILE_OK);
  const Json written = Json::parse(std::ifstream(path));
  CHECK(written["device"] == "cpu");
  REQUIRE(written["misses"].size() == 2);
  CHECK(written["misses"][0]["operation"] == "softmax");
  CHECK(written["misses"][0]["lengths"] == Json::array({3, 4}));
  CHECK(written["misses"][0]["calls"] == 3);
  CHECK(written["misses"][0]["workload"]["threads"] == 2);
  CHECK(written["misses"][1]["lengths"] == Json::array({193, 208}));

  CHECK(seqtile_engine_write_misses(world.engine.get(), world.folder.file("none/misses.json").c_str()) == SEQTILE_IO);
  CHECK_THAT(seqtile_last_error(), Catch::Contains("none/misses.json: cannot be made: No such file"));
  CHECK(seqtile_engine_write_misses(world.engine.get(), nullptr) == SEQTILE_INVALID_ARGUMENT);
}

TEST_CASE("objects may be released in any order and from any thread", "[fast]") {
  World world;
  auto op = world.prepare("softmax", R"({"n": 4})");
  seqtile_engine_retain(world.engine.get());
  const EnginePtr second(world.engine.get());
  world.engine.reset();
  seqtile_op_retain(op.get());
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    seqtile_op_retain(op.get());
    threads.emplace_back([mine = OpPtr(op.get()), &failures] {
      std::vector<float> in(8, 1), out(8, 7);
      const Dl x(in.data(), kF32, {2, 4}), y(out.data(), kF32, {2, 4});
      for (int i = 0; i < 100; ++i) failures += call<2>(mine, {x, y}) != SEQTILE_OK || out[7] != 0.25f;
    });
  }
  seqtile_op_release(op.get());
  op.reset();
  for (std::thread& thread : threads) thread.join();
  CHECK(failures.load() == 0);
  seqtile_engine_release(nullptr);
  seqtile_op_release(nullptr);
}

TEST_CASE("errors are a thread's own", "[fast]") {
  seqtile_op* op = nullptr;
  CHECK(seqtile_engine_prepare(nullptr, "softmax", "{}", &op) == SEQTILE_INVALID_ARGUMENT);
  const std::string mine = seqtile_last_error();
  std::thread([] {
    CHECK(std::string(seqtile_last_error()).empty());
    CHECK(seqtile_operations(nullptr) == SEQTILE_INVALID_ARGUMENT);
    CHECK(std::string(seqtile_last_error()) == "json is null");
  }).join();
  CHECK(std::string(seqtile_last_error()) == mine);
}

TEST_CASE("log lines go to the program's function", "[fast]") {
  struct Lines {
    std::mutex mutex;
    std::vector<std::pair<int, std::string>> all;
  } lines;
  seqtile_set_log(
      [](void* context, int32_t level, const char* line) {
        auto& to = *static_cast<Lines*>(context);
        const std::lock_guard lock(to.mutex);
        to.all.emplace_back(level, line);
      },
      &lines);
  const std::shared_ptr<void> standard_error_again(nullptr, [](void*) { seqtile_set_log(nullptr, nullptr); });
  const World world;
  std::ofstream(world.folder.file("broken.db")) << "this is no database, and long enough to be looked at as one";
  seqtile_engine* opened = nullptr;
  const std::string options = R"({"cache": ")" + world.folder.file("broken.db") + "\"}";
  CHECK(seqtile_engine_open(options.c_str(), &opened) == SEQTILE_OK);
  seqtile_engine_release(opened);
  seqtile_set_log(nullptr, nullptr);
  const auto about = [&](const char* word) {
    return std::ranges::find_if(lines.all,
                                [&](const auto& line) { return line.second.find(word) != std::string::npos; });
  };
  REQUIRE(about("broken.db") != lines.all.end());
  CHECK(about("broken.db")->first == 0);
  CHECK(about("\n") == lines.all.end());
}
