// tests/planner/graph_json_test.cpp -- graphs that are wrong are refused in one line that names the place.
// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/graph_json.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "seqtile/error.h"
#include "tests/planner/plan_files.h"
#include "tests/support/temp_folder.h"

namespace seqtile::testing {
namespace {

using nlohmann::json;
using namespace planner;

json small_graph() {
  return json::parse(R"({
    "meta": {"mesh": [2, 2], "alpha": [1, 1], "beta": [1, 1], "model": "three nodes"},
    "nodes": [
      {"name": "x", "op": "placeholder", "target": "x", "inputs": [],
       "out": {"shape": [8, 4], "dtype": "torch.float32"}, "merge": false, "args": [], "strategies": [
         {"name": "all", "specs": {"x": ["R", "R"]}, "kinds": {"x": "OUTPUT"}, "compute": [1, 1, 2], "comm": [0, 0, 0],
          "mem": {"total": {"activation": 128, "parameter": 0, "temp": 0, "buffer": 0}}, "reshard": {}}]},
      {"name": "y", "op": "call_function", "target": "relu", "inputs": ["x", "size_1"],
       "out": {"shape": [8, 4], "dtype": "torch.float32"}, "merge": true, "args": ["x"], "strategies": [
         {"name": "rows", "specs": {"x": ["S01", "R"], "y": ["S01", "R"]}, "kinds": {}, "compute": [1, 1, 2],
          "comm": [0, 0, 0], "mem": {"total": {"activation": 32}}, "reshard": {}}]},
      {"name": "out", "op": "output", "inputs": ["y"], "out": null, "strategies": [
         {"name": "all", "specs": {"y": ["R", "R"]}, "kinds": {}, "compute": [0, 0, 0], "comm": [0, 0, 0],
          "mem": {"total": {}}, "reshard": {}}]}]})");
}

}  // namespace

TEST_CASE("plan graph: what is read is what was written", "[plan]") {
  const Graph graph = *parse_plan_file(small_graph().dump(), "small").graph;
  REQUIRE(graph.nodes.size() == 3);
  CHECK(graph.mesh.num_axes == 2);
  CHECK(graph.nodes[1].inputs == std::vector<int>{0});
  CHECK(graph.nodes[1].merges);
  const Strategy& rows = graph.nodes[1].strategies[0];
  CHECK(rows.operands[0][0] == Layout().with(0, 3));
  CHECK(rows.memory == 32);
  CHECK(graph.nodes[0].results[0].shape == std::vector<int64_t>{8, 4});
}

TEST_CASE("plan graph: what is written is read again, plain and compressed", "[plan]") {
  const test::TempFolder folder;
  for (const std::string name : kPlanFiles) {
    INFO(name);
    const Graph graph = *read_plan_file(plan_file(name)).graph;
    const std::string text = graph_json(graph);
    std::ofstream(folder.file("g.json")) << text;
    std::ofstream(folder.file("g.json.gz"), std::ios::binary) << compressed(text);
    CHECK(compressed(text).size() < text.size() / 4);
    for (const char* file : {"g.json", "g.json.gz"}) {
      const Graph again = *read_plan_file(folder.file(file)).graph;
      REQUIRE(again.nodes.size() == graph.nodes.size());
      CHECK(again.mesh.shape == graph.mesh.shape);
      CHECK(again.mesh.alpha == graph.mesh.alpha);
      for (size_t i = 0; i < graph.nodes.size(); ++i) {
        const Node &was = graph.nodes[i], &is = again.nodes[i];
        CHECK(std::tie(is.name, is.op, is.target, is.inputs, is.is_tuple, is.merges, is.module, is.parameters,
                       is.description, is.arguments) == std::tie(was.name, was.op, was.target, was.inputs, was.is_tuple,
                                                                 was.merges, was.module, was.parameters,
                                                                 was.description, was.arguments));
        REQUIRE(is.results.size() == was.results.size());
        for (size_t j = 0; j < is.results.size(); ++j) {
          CHECK(is.results[j].shape == was.results[j].shape);
          CHECK(is.results[j].dtype == was.results[j].dtype);
        }
      }
    }
  }
}

TEST_CASE("plan graph: each thing that is wrong is named with its place", "[plan]") {
  const auto refused = [](const char* why, const std::function<void(json&)>& change) {
    json graph = small_graph();
    change(graph);
    CHECK_THROWS_WITH(parse_plan_file(graph.dump(), "g.json"), Catch::StartsWith("g.json") && Catch::Contains(why));
  };
  refused("an empty graph", [](json& g) { g["nodes"] = json::array(); });
  refused("unknown field \"colour\"", [](json& g) { g["nodes"][0]["colour"] = 1; });
  refused("is a model file, not a graph; `seqtile plan model", [](json& g) { g["model_type"] = "llama"; });
  refused("unknown field \"extra\"; known ones are meta, nodes, problem, solution", [](json& g) { g["extra"] = 1; });
  refused("g.json.nodes[1].inputs[0]: \"y\" comes at or behind its consumer: a cycle",
          [](json& g) { g["nodes"][1]["inputs"] = {"y"}; });
  refused("g.json.nodes[1].inputs[0]: \"z\", an input of node y, is no node: the name is misspelt", [](json& g) {
    g["meta"]["version"] = 2;
    g["nodes"][1]["inputs"] = {"z"};
  });
  refused("the name \"x\" is taken", [](json& g) { g["nodes"][1]["name"] = "x"; });
  refused("the shape of the result, is missing", [](json& g) { g["nodes"][0].erase("out"); });
  refused("\"shape\" is missing", [](json& g) { g["nodes"][0]["out"].erase("shape"); });
  refused("0 is not in 1..", [](json& g) { g["nodes"][0]["out"]["shape"] = {0, 4}; });
  refused("g.json.nodes[1].params.bias: 30 dimensions: at most 8 are supported",
          [](json& g) { g["nodes"][1]["params"]["bias"] = std::vector<int>(30, 2); });
  refused("g.json.nodes[1].params.weight: more than 2^40 elements", [](json& g) {
    g["nodes"][1]["params"]["weight"] = {8, 4, int64_t{1} << 40, int64_t{1} << 40};
  });
  refused("1..3 are wanted", [](json& g) { g["meta"]["mesh"] = {2, 2, 2, 2}; });
  refused("more than 1048576 devices", [](json& g) { g["meta"]["mesh"] = {1 << 15, 1 << 15}; });
  refused("4 devices in all, \"devices\" says 8", [](json& g) { g["meta"]["devices"] = 8; });
  refused("neither training nor prefill", [](json& g) { g["meta"]["phase"] = "decode"; });
  refused("-1 is below 0", [](json& g) { g["meta"]["alpha"] = {1, -1}; });
  refused("2 numbers are wanted", [](json& g) { g["meta"]["beta"] = {1}; });
  refused(
      "\"alpha\" is missing: what a message costs, a number for each axis of the mesh; give 1 for each until it is "
      "measured, and with --costs calibrated the --calibration of `seqtile plan calibrate`",
      [](json& g) { g["meta"].erase("alpha"); });
  refused("g.json.meta.beta[1]: 1e+300 is more than 1e+15", [](json& g) { g["meta"]["beta"] = {1, 1e300}; });
  refused("g.json.nodes[1]: an object is wanted, not 7", [](json& g) { g["nodes"][1] = 7; });
  refused("g.json.nodes[0].name: an empty name", [](json& g) { g["nodes"][0]["name"] = ""; });
  refused("g.json.nodes[0].name: a NUL character", [](json& g) { g["nodes"][0]["name"] = std::string("x\0y", 3); });
  refused("g.json.nodes[0].name: a name of 1001 bytes: at most 1000 are supported",
          [](json& g) { g["nodes"][0]["name"] = std::string(1001, 'x'); });
  refused(
      "g.json.nodes[1].op: \"call\" is none of placeholder, get_attr, call_function, call_method, call_module, "
      "output",
      [](json& g) { g["nodes"][1]["op"] = "call"; });
  refused("g.json.nodes[1]: \"target\", what node y calls, is missing", [](json& g) { g["nodes"][1].erase("target"); });
  refused("g.json.nodes[1]: \"target\"", [](json& g) { g["nodes"][1]["target"] = ""; });
  refused("g.json.nodes[1]: \"target\"", [](json& g) {
    g["nodes"][1]["op"] = "call_module";
    g["nodes"][1].erase("target");
  });
  refused("g.json.nodes[0]: output x is node 1 of 3; it must be the last one", [](json& g) {
    g["nodes"][0]["op"] = "output";
    g["nodes"][1]["inputs"] = json::array();
    g["nodes"][1]["merge"] = false;
  });
  refused("g.json.nodes: the last node, y, is no output but a call_function: the program that wrote",
          [](json& g) { g["nodes"].erase(2); });
  refused("g.json.nodes: output out has no node among its inputs",
          [](json& g) { g["nodes"][2]["inputs"] = {"size_1"}; });
  refused("g.json.nodes[1].params: an object of shapes by name is wanted",
          [](json& g) { g["nodes"][1]["params"] = {1}; });
  refused(
      "g.json.nodes[1]: shapes of node y contradict each other: relu of x [8, 4] gives [8, 4], \"out\" says [8, "
      "8]",
      [](json& g) {
        g["nodes"][1]["out"]["shape"] = {8, 8};
      });
  refused("unknown type", [](json& g) { g["nodes"][0]["out"]["dtype"] = "torch.float3"; });
  refused("no cut of a dimension", [](json& g) { g["nodes"][1]["strategies"][0]["specs"]["y"] = {"S10", "R"}; });
  refused("unknown type \"torch.float23\"; known ones are torch.float64, ",
          [](json& g) { g["nodes"][0]["out"]["dtype"] = "torch.float23"; });
  refused("; did you mean torch.float32?", [](json& g) { g["nodes"][0]["out"]["dtype"] = "torch.float23"; });
  refused("the mesh has 2 axes", [](json& g) { g["nodes"][1]["strategies"][0]["specs"]["y"] = {"S2", "R"}; });
  refused("cuts two dimensions", [](json& g) { g["nodes"][1]["strategies"][0]["specs"]["y"] = {"S0", "S01"}; });
  refused("1 dimension, the tensor has 2", [](json& g) { g["nodes"][1]["strategies"][0]["specs"]["y"] = {"S0"}; });
  refused("not divisible by 4 devices", [](json& g) { g["nodes"][0]["out"]["shape"] = {6, 4}; });
  refused("\"x\" is missing", [](json& g) { g["nodes"][1]["strategies"][0]["specs"].erase("x"); });
  refused("three numbers", [](json& g) { g["nodes"][1]["strategies"][0]["compute"] = {1, 2}; });
  refused("compute[0]: -1 is below 0", [](json& g) { g["nodes"][1]["strategies"][0]["compute"] = {-1, 1, 2}; });
  refused("compute[1]: a number is wanted, not \"2\"", [](json& g) {
    g["nodes"][1]["strategies"][0]["compute"] = {1, "2", 3};
  });
  refused("g.json.nodes[1].strategies[0].mem.total.parameter: -8 is below 0",
          [](json& g) { g["nodes"][1]["strategies"][0]["mem"]["total"]["parameter"] = -8; });
  refused("no strategy", [](json& g) { g["nodes"][1]["strategies"] = json::array(); });
  refused("nothing to merge into", [](json& g) { g["nodes"][0]["merge"] = true; });
  refused("2 strategies; as the node merges into x as many as there, 1, are wanted", [](json& g) {
    json& strategies = g["nodes"][1]["strategies"];
    strategies.push_back(strategies[0]);
  });
  CHECK_THROWS_WITH(parse_plan_file(small_graph().dump().substr(0, 300), "g.json"), Catch::Contains("no JSON"));
  CHECK_THROWS_WITH(parse_plan_file("[]", "g.json"), Catch::Contains("an object is wanted"));
}

TEST_CASE("plan graph: of a path that is longer than a message the reason is still told", "[plan]") {
  const std::string path = "begin/" + std::string(10000, 'x') + "/end.json";
  const auto refused = [&](const auto& read, const std::string& why) {
    CHECK_THROWS_WITH(read(), Catch::Contains("begin/x") && Catch::Contains("x/end.json") && Catch::EndsWith(why));
  };
  refused([&] { return parse_plan_file("{\"a\": ", path); },
          "x/end.json: no JSON: line 1, column 1: '{' is not closed: the file is cut off; get it again");
  refused([&] { return parse_plan_file("{\"nodes\": [], \"meta\": {}}", path); },
          "x/end.json.meta: \"mesh\" is missing");
  refused([&] { return read_plan_file(path); }, "give a graph or a problem as JSON (docs/plan_format.md)");
}

TEST_CASE("plan problem: arrays of other lengths are refused with how many numbers are wanted", "[plan]") {
  const json good = json::parse(R"({"s_len": [2, 3], "s_follow": [-1, -1], "edges": [[0, 1]],
    "reshard": [1, 2, 3, 4, 5, 6], "compute": [1, 2, 3, 4, 5], "comm": [0, 0, 0, 0, 0], "mem": [0, 0, 0, 0, 0]})");
  CHECK(parse_plan_file(json{{"problem", good}}.dump(), "p.json").problem->edges.front().cost.back() == 6);
  for (const char* array : {"compute", "comm", "mem", "reshard"})
    for (const size_t count : {good[array].size() - 1, good[array].size() + 1}) {
      json problem = good;
      problem[array] = std::vector<int>(count, 1);
      CHECK_THROWS_WITH(parse_plan_file(json{{"problem", problem}}.dump(), "p.json"),
                        fmt::format("p.json.problem.{}: {} numbers, {} are wanted", array, count, good[array].size()));
    }
}

TEST_CASE("plan graph: values that are a million arrays deep are refused", "[plan]") {
  std::string text = small_graph().dump(), deep(2'000'000, '[');
  std::fill(deep.begin() + 1'000'000, deep.end(), ']');
  const std::string name = R"("name":"x")";
  text.replace(text.find(name), name.size(), "\"name\":" + deep);
  CHECK_THROWS_WITH(parse_plan_file(text, "g.json"), Catch::Contains("201 brackets are open here, at most 200"));
}

TEST_CASE("plan graph: files that are missing or cut off are refused", "[plan]") {
  const test::TempFolder folder;
  const auto refused = [&](const std::string& name, const std::string& why) {
    CHECK_THROWS_WITH(read_plan_file(folder.file(name)),
                      Catch::StartsWith("file " + folder.file(name) + ": " + why) && Catch::Contains("; give a graph"));
    CHECK_THROWS_MATCHES(read_plan_file(folder.file(name)), Error, Catch::Predicate<Error>([](const Error& error) {
                           return error.code() == ErrorCode::invalid_argument;
                         }));
  };
  refused("none", "there is no such file");
  refused(".", "is a folder, not a file");
  std::ifstream whole(plan_file("gpt_mlp_384"), std::ios::binary);
  std::stringstream bytes;
  bytes << whole.rdbuf();
  std::ofstream(folder.file("cut.gz"), std::ios::binary) << bytes.str().substr(0, bytes.str().size() / 2);
  refused("cut.gz", "is cut off");
}

TEST_CASE("plan graph: text that is no JSON is refused with its line, its column and what was expected", "[plan]") {
  const auto refused = [](const std::string& text, const std::string& why) {
    INFO(text.substr(0, 80));
    CHECK_THROWS_WITH(parse_plan_file(text, "g.json"), "g.json: no JSON: " + why);
  };
  refused("", "empty; get the file again");
  refused(" \n\t ", "empty; get the file again");
  refused("{\n \"meta\" 1}", "line 2, column 9: a ':' is missing before it");
  refused("{\"nodes\": [", "line 1, column 11: '[' is not closed: the file is cut off; get it again");
  refused("{\"alpha 1e999\": 2,\n \"beta\": [1, -1e999]}",
          "line 2, column 14: -1e999 is too large; numbers up to 1.8e308 are wanted");
  refused("{\"a\": \"" + std::string(1000, 'x'),
          "line 1, column 7: a text that does not end: the file is cut off; get it again");
  const std::string many(1000, 'x');
  refused("{\"a\": \"" + many + "\\x\"}", "line 1, column 1009: a '\\' before what JSON does not escape; write '\\\\'");
}

}  // namespace seqtile::testing
