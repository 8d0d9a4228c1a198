// planner/graph/graph_json.cpp -- see graph_json.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/graph_json.h"

#include <fmt/ranges.h>

#include <iterator>

#include "jit/base/counted.h"
#include "jit/base/nearest_word.h"
#include "planner/graph/json_reader.h"
#include "planner/graph/shape_check.h"
#include "planner/graph/shared_parameters.h"
#include "planner/graph/torch_types.h"
#include "seqtile/error.h"

namespace seqtile::planner {
namespace {

constexpr int64_t kMostDevices = 1 << 20;
constexpr double kMostPrice = 1e15;  ///< limit of the price of a message or an element, so that sums stay finite
constexpr std::string_view kOps[] = {"placeholder", "get_attr",    "call_function",
                                     "call_method", "call_module", "output"};

double read_price(const Reader& json) {
  const double price = json.not_negative();
  if (price > kMostPrice)
    json.refuse(fmt::format("{:g} is more than {:g}; give it in a larger unit", price, kMostPrice));
  return price;
}

Mesh read_mesh(const Reader& meta) {
  Mesh mesh;
  const auto axis = [&](const char* field, size_t i) { return meta[field].at(i); };
  const size_t axes = meta["mesh"].size();
  if (axes < 1 || axes > kMaxAxes) meta["mesh"].refuse(fmt::format("{} axes: 1..{} are wanted", axes, kMaxAxes));
  mesh.num_axes = static_cast<int>(axes);
  for (const char* field : {"alpha", "beta"}) {
    if (!meta.has(field))
      meta.refuse(
          fmt::format("\"{}\" is missing: what {} costs, a number for each axis of the mesh; give 1 for each "
                      "until it is measured, and with --costs calibrated the --calibration of `seqtile plan "
                      "calibrate`",
                      field, field == std::string_view("alpha") ? "a message" : "an element of it"));
    if (meta[field].size() != axes) meta[field].refuse(fmt::format("{} numbers are wanted, one for each axis", axes));
  }
  int64_t devices = 1;
  for (size_t i = 0; i < axes; ++i) {
    mesh.shape[i] = static_cast<int>(axis("mesh", i).integer(1, kMostDevices));
    devices *= mesh.shape[i];
    if (devices > kMostDevices) meta["mesh"].refuse(fmt::format("more than {} devices in all", kMostDevices));
    mesh.alpha[i] = read_price(axis("alpha", i));
    mesh.beta[i] = read_price(axis("beta", i));
  }
  if (meta.has("devices") && meta["devices"].integer(1, kMostDevices) != devices)
    meta["mesh"].refuse(
        fmt::format("{} in all, \"devices\" says {}", counted(devices, "device"), excerpt(meta["devices"].json())));
  return mesh;
}

/// In version 1 a parameter that several operators read has a node for each reader, and nodes have no roles.
int64_t read_version(const Reader& meta) {
  if (!meta.has("version")) return 1;
  const int64_t version = meta["version"].integer(1, 1 << 20);
  if (version > kGraphVersion)
    meta["version"].refuse(fmt::format(
        "version {} of the format is newer than this program, which reads 1 to {}; update it, or export the "
        "graph with its own tools/python/export_graph.py",
        version, kGraphVersion));
  return version;
}

Role read_role(const Reader& json) {
  const std::string role = json.text();
  for (size_t i = 0; i < std::size(kRoles); ++i)
    if (kRoles[i] == role) return static_cast<Role>(i);
  json.refuse(fmt::format("\"{}\" is none of {}{}", role, fmt::join(kRoles, ", "), did_you_mean(role, kRoles)));
}

bool read_is_training(const Reader& meta) {
  if (!meta.has("phase")) return true;
  const std::string phase = meta["phase"].text();
  if (phase != "training" && phase != "prefill")
    meta["phase"].refuse(
        fmt::format("\"{}\" is neither training nor prefill{}", phase, did_you_mean(phase, {"training", "prefill"})));
  return phase == "training";
}

std::vector<int64_t> read_shape(const Reader& json) {
  std::vector<int64_t> shape;
  double elements = 1;
  json.each([&](const Reader& size) {
    shape.push_back(size.integer(1, kMostElements));
    elements *= static_cast<double>(shape.back());
  });
  if (shape.size() > kMaxRank)
    json.refuse(fmt::format("{} dimensions: at most {} are supported", shape.size(), kMaxRank));
  if (elements > static_cast<double>(kMostElements)) json.refuse("more than 2^40 elements");
  return shape;
}

TensorType read_type(const Reader& json) {
  json.allow({"shape", "dtype"});
  TensorType type;
  type.shape = read_shape(json["shape"]);
  const std::string name = json["dtype"].text();
  const auto found = std::ranges::find(kTorchTypes, name, &TorchType::torch);
  if (found == kTorchTypes.end()) {
    std::vector<std::string_view> names;
    for (const TorchType& known : kTorchTypes) names.push_back(known.torch);
    json["dtype"].refuse(fmt::format("unknown type \"{}\"; known ones are {}{}", name, fmt::join(names, ", "),
                                     did_you_mean(name, names)));
  }
  type.dtype = found->name;
  type.element_bytes = found->bytes;
  return type;
}

Layout read_layout(const Reader& json, const TensorType& type, const Mesh& mesh) {
  if (json.size() != type.shape.size())
    json.refuse(fmt::format("{}, the tensor has {}", counted(json.size(), "dimension"), type.shape.size()));
  Layout layout;
  for (size_t dim = 0; dim < json.size(); ++dim) {
    AxisSet axes = 0;
    try {
      axes = parse_axes(json.at(dim).text());
    } catch (const Error& error) {
      json.at(dim).refuse(error.what());
    }
    if (axes & ~mesh.all()) json.at(dim).refuse("the mesh has " + counted(mesh.num_axes, "axis"));
    if (axes & layout.cutting()) json.at(dim).refuse("a mesh axis cuts two dimensions");
    if (type.shape[dim] % mesh.devices(axes) != 0)
      json.at(dim).refuse(fmt::format("{}: not divisible by {}", counted(type.shape[dim], "element"),
                                      counted(mesh.devices(axes), "device")));
    layout = layout.with(static_cast<int>(dim), axes);
  }
  return layout;
}

/// Reads one layout, or one for each member of a tuple.
std::vector<Layout> read_layouts(const Reader& json, const Node& of, const Mesh& mesh) {
  if (of.results.empty()) return {};
  if (!of.is_tuple) return {read_layout(json, of.results.front(), mesh)};
  if (json.size() != of.results.size())
    json.refuse(fmt::format("{} layouts, {} has {} members", json.size(), of.name, of.results.size()));
  std::vector<Layout> layouts;
  for (size_t i = 0; i < json.size(); ++i) layouts.push_back(read_layout(json.at(i), of.results[i], mesh));
  return layouts;
}

/// Reads [forward, backward, total]. The planner uses the total.
double read_total(const Reader& json) {
  if (json.size() != 3) json.refuse("three numbers are wanted: forward, backward, total");
  json.each([](const Reader& part) { part.not_negative(); });
  return json.at(2).number();
}

Strategy read_strategy(const Reader& json, const Node& node, const Graph& graph) {
  json.allow({"name", "specs", "kinds", "compute", "comm", "mem", "reshard"});
  Strategy strategy;
  strategy.name = json["name"].text();
  const Reader specs = json["specs"];
  for (const int input : node.inputs) {
    const Node& producer = graph.nodes[static_cast<size_t>(input)];
    strategy.operands.push_back(read_layouts(specs[producer.name.c_str()], producer, graph.mesh));
  }
  if (!node.results.empty()) strategy.results = read_layouts(specs[node.name.c_str()], node, graph.mesh);
  strategy.compute = read_total(json["compute"]);
  strategy.communication = read_total(json["comm"]);
  const Reader memory = json["mem"]["total"];
  for (const char* part : {"activation", "parameter", "buffer"})
    if (memory.has(part)) strategy.memory += memory[part].not_negative();
  return strategy;
}

void read_results(const Reader& json, Node& node) {
  if (!json.has("out")) {
    if (node.op != "output") json.refuse("\"out\", the shape of the result, is missing");
    return;
  }
  const Reader out = json["out"];
  node.is_tuple = out.json().is_array();
  if (!node.is_tuple) node.results.push_back(read_type(out));
  else out.each([&](const Reader& member) { node.results.push_back(read_type(member)); });
  if (node.results.empty()) out.refuse("a tuple without members");
}

void read_operator(const Reader& json, Node& node) {
  node.op = json["op"].text();
  if (std::ranges::find(kOps, node.op) == std::end(kOps))
    json["op"].refuse(
        fmt::format("\"{}\" is none of {}{}", node.op, fmt::join(kOps, ", "), did_you_mean(node.op, kOps)));
  if (json.has("target")) node.target = json["target"].text();
  if (json.has("module")) node.module = json["module"].text();
  if (node.op.starts_with("call_") && node.target.empty() && (node.op != "call_module" || node.module.empty()))
    json.refuse(fmt::format("\"target\", what node {} calls, is missing", node.name));
}

/// `has_numbers`: inputs may name sizes, which are no nodes, as in version 1.
Node read_node(const Reader& json, const std::map<std::string, int>& before, const std::map<std::string, int>& all,
               bool has_numbers) {
  json.allow(
      {"name", "op", "target", "role", "inputs", "out", "merge", "args", "module", "params", "repr", "strategies"});
  Node node;
  node.name = json["name"].text();
  read_operator(json, node);
  json["inputs"].each([&](const Reader& input) {
    const std::string name = input.text();
    if (const auto found = before.find(name); found != before.end()) {
      if (std::ranges::find(node.inputs, found->second) == node.inputs.end()) node.inputs.push_back(found->second);
    } else if (all.contains(name)) {
      input.refuse("\"" + name + "\" comes at or behind its consumer: a cycle, or nodes in another order");
    } else if (!has_numbers) {
      input.refuse(
          fmt::format("\"{}\", an input of node {}, is no node: the name is misspelt, or the program that wrote "
                      "the graph left the node out; export the model again",
                      name, node.name));
    }
  });
  read_results(json, node);
  if (json.has("role")) node.role = read_role(json["role"]);
  if (json.has("role") && node.op != "get_attr") json["role"].refuse("it is for a get_attr");
  if (json.has("merge")) node.merges = json["merge"].as<bool>("true or false");
  if (node.merges && node.inputs.empty()) json["merge"].refuse("a node without inputs has nothing to merge into");
  if (json.has("repr")) node.description = json["repr"].text();
  if (json.has("args")) json["args"].each([&](const Reader& argument) { node.arguments.push_back(argument.text()); });
  if (json.has("params")) {
    if (!json["params"].json().is_object())
      json["params"].refuse("an object of shapes by name is wanted, as {\"weight\": [8, 8]}");
    for (const auto& [name, value] : json["params"].json().items())
      node.parameters[name] = read_shape(Reader(value, json.place() + ".params." + name));
  }
  return node;
}

void check_strategies(const Reader& json, const Node& node, const Graph& graph) {
  const size_t count = node.strategies.size();
  if (count == 0) json["strategies"].refuse("no strategy; leave the field out to have them made");
  if (!node.merges) return;
  const Node& leader = graph.nodes[static_cast<size_t>(node.inputs.front())];
  if (leader.strategies.size() != count)
    json["strategies"].refuse(fmt::format("{}; as the node merges into {} as many as there, {}, are wanted",
                                          counted(count, "strategy"), leader.name, leader.strategies.size()));
}

void check_name(const Reader& json) {
  constexpr size_t kMostBytes = 1000;
  const std::string name = json.text();
  if (name.empty()) json.refuse("an empty name");
  if (name.find('\0') != std::string::npos) json.refuse("a NUL character, which no plan's text can hold");
  if (name.size() > kMostBytes)
    json.refuse(fmt::format("a name of {} bytes: at most {} are supported", name.size(), kMostBytes));
}

/// Refuses a graph whose results nothing wants: their layouts would cost nothing.
void check_output(const Reader& nodes, const Node& last) {
  if (last.op != "output")
    nodes.refuse(
        fmt::format("the last node, {}, is no output but a {}: the program that wrote the file left the "
                    "output out; export the model again, or add {{\"name\": \"output\", "
                    "\"op\": \"output\", \"inputs\": [...], \"out\": null}} with the names of the results",
                    last.name, last.op));
  if (last.inputs.empty())
    nodes.refuse(
        fmt::format("output {} has no node among its inputs; give the names of the model's results there", last.name));
}

Graph read_graph(const Reader& root) {
  Graph graph;
  graph.mesh = read_mesh(root["meta"]);
  const bool has_numbers = read_version(root["meta"]) == 1;
  graph.is_training = read_is_training(root["meta"]);
  const Reader nodes = root["nodes"];
  if (nodes.size() == 0) nodes.refuse("an empty graph");
  std::map<std::string, int> before, all;
  nodes.each([&](const Reader& json) {
    check_name(json["name"]);
    if (!all.emplace(json["name"].text(), 0).second) json.refuse("the name \"" + json["name"].text() + "\" is taken");
  });
  nodes.each([&](const Reader& json) {
    Node node = read_node(json, before, all, has_numbers);
    before[node.name] = static_cast<int>(graph.nodes.size());
    if (node.op == "output" && before.size() < nodes.size())
      json.refuse(fmt::format("output {} is node {} of {}; it must be the last one, and the only output", node.name,
                              before.size(), nodes.size()));
    if (json.has("strategies")) {
      json["strategies"].each(
          [&](const Reader& strategy) { node.strategies.push_back(read_strategy(strategy, node, graph)); });
      check_strategies(json, node, graph);
    }
    graph.nodes.push_back(std::move(node));
    if (const std::string why = contradiction(graph, graph.nodes.back()); !why.empty()) json.refuse(why);
  });
  check_output(nodes, graph.nodes.back());
  try {
    if (graph.nodes.front().strategies.empty()) share_parameters(graph);
  } catch (const Error& error) {
    nodes.refuse(error.what());
  }
  return graph;
}

/// The numbers of an array, taken in order.
class Stream {
 public:
  explicit Stream(const Reader& json) : json_(json), size_(json.size()) {}
  /// Requires: no number was taken yet.
  void check_has(size_t wanted) const {
    if (size_ != wanted) json_.refuse(fmt::format("{}, {} are wanted", counted(size_, "number"), wanted));
  }
  std::vector<double> take(size_t count) {
    std::vector<double> values;
    for (const size_t end = next_ + count; next_ < end; ++next_) values.push_back(json_.at(next_).number());
    return values;
  }

 private:
  const Reader& json_;
  size_t size_, next_ = 0;
};

Problem read_problem(const Reader& json) {
  json.allow({"s_len", "s_follow", "alias", "edges", "compute", "comm", "mem", "reshard"});
  Problem problem;
  const Reader lengths = json["s_len"], follows = json["s_follow"], computes = json["compute"], comms = json["comm"],
               memories = json["mem"], reshards = json["reshard"];
  const auto nodes = static_cast<int64_t>(lengths.size());
  if (static_cast<int64_t>(follows.size()) != nodes) follows.refuse(fmt::format("{} numbers are wanted", nodes));
  Stream compute(computes), comm(comms), memory(memories), reshard(reshards);
  const auto strategies_of = [&](size_t node) { return static_cast<size_t>(lengths.at(node).integer(1, 1 << 20)); };
  size_t strategies = 0;
  for (size_t node = 0; node < lengths.size(); ++node) strategies += strategies_of(node);
  for (const Stream* stream : {&compute, &comm, &memory}) stream->check_has(strategies);
  for (size_t node = 0; node < lengths.size(); ++node) {
    const size_t count = strategies_of(node);
    problem.costs.push_back(compute.take(count));
    const std::vector<double> of_comm = comm.take(count);
    for (size_t i = 0; i < count; ++i) problem.costs.back()[i] += of_comm[i];
    problem.memory.push_back(memory.take(count));
    problem.follows.push_back(static_cast<int>(follows.at(node).integer(-1, nodes - 1)));
  }
  const auto entries_of = [&](const Edge& edge) {
    return problem.costs[static_cast<size_t>(edge.producer)].size() *
           problem.costs[static_cast<size_t>(edge.consumer)].size();
  };
  size_t entries = 0;
  json["edges"].each([&](const Reader& pair) {
    if (pair.size() != 2) pair.refuse("a producer and a consumer are wanted");
    Edge edge{
        static_cast<int>(pair.at(0).integer(0, nodes - 1)), static_cast<int>(pair.at(1).integer(0, nodes - 1)), {}};
    entries += entries_of(edge);
    problem.edges.push_back(std::move(edge));
  });
  reshard.check_has(entries);
  for (Edge& edge : problem.edges) edge.cost = reshard.take(entries_of(edge));
  return problem;
}

/// Makes nodes that repeat another node follow it. A node that follows already keeps its leader.
void read_aliases(const Reader& json, Problem& problem) {
  if (!json.has("alias")) return;
  const Reader aliases = json["alias"];
  const auto last = static_cast<int64_t>(problem.follows.size()) - 1;
  for (const auto& [name, value] : aliases.json().items()) {
    char* end = nullptr;
    const long node = std::strtol(name.c_str(), &end, 10);
    if (*end || name.empty() || node < 0 || node > last) aliases.refuse("\"" + name + "\" is no node");
    const int64_t same = Reader(value, aliases.place() + "." + name).integer(0, last);
    if (int& leader = problem.follows[static_cast<size_t>(node)]; leader < 0) leader = static_cast<int>(same);
  }
}

}  // namespace

PlanFile parse_plan_file(const std::string& text, const std::string& name) {
  const Json json = parse_json(text, name);
  const Reader root(json, name);
  if (root.has("model_type")) root.refuse("is a model file, not a graph; `seqtile plan model --model FILE` plans it");
  root.allow({"meta", "nodes", "problem", "solution"});
  PlanFile file;
  if (root.has("nodes")) file.graph = read_graph(root);
  if (root.has("problem")) {
    file.problem = read_problem(root["problem"]);
    read_aliases(root["problem"], *file.problem);
    try {
      check(*file.problem);
    } catch (const Error& error) {
      root["problem"].refuse(error.what());
    }
  }
  if (root.has("solution")) file.objective = root["solution"]["objective"].number();
  return file;
}

PlanFile read_plan_file(const std::string& path) {
  return parse_plan_file(read_text({path, "file", "give a graph or a problem as JSON (docs/plan_format.md)"}), path);
}

}  // namespace seqtile::planner
