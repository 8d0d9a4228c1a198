// planner/graph/graph_json_write.cpp -- see graph_json.h.
// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "jit/base/assert.h"
#include "planner/graph/graph_json.h"
#include "planner/graph/torch_types.h"
#include "seqtile/error.h"

namespace seqtile::planner {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson type_json(const TensorType& type) {
  const auto found = std::ranges::find(kTorchTypes, type.dtype, [](const TorchType& known) { return known.name; });
  SEQTILE_ASSERT(found != kTorchTypes.end());
  return {{"shape", type.shape}, {"dtype", found->torch}};
}

OrderedJson results_json(const Node& node) {
  if (node.results.empty()) return nullptr;
  if (!node.is_tuple) return type_json(node.results.front());
  OrderedJson members = OrderedJson::array();
  for (const TensorType& type : node.results) members.push_back(type_json(type));
  return members;
}

OrderedJson node_json(const Graph& graph, const Node& node) {
  OrderedJson inputs = OrderedJson::array();
  for (const int input : node.inputs) inputs.push_back(graph.nodes[static_cast<size_t>(input)].name);
  OrderedJson json{
      {"name", node.name},         {"op", node.op},        {"target", node.target}, {"inputs", std::move(inputs)},
      {"out", results_json(node)}, {"merge", node.merges}, {"args", node.arguments}};
  if (node.op == "get_attr") json["role"] = kRoles[static_cast<size_t>(node.role)];
  if (!node.module.empty()) json["module"] = node.module;
  if (!node.parameters.empty()) json["params"] = node.parameters;
  if (!node.description.empty()) json["repr"] = node.description;
  return json;
}

}  // namespace

std::string graph_json(const Graph& graph) {
  const Mesh& mesh = graph.mesh;
  const auto of_axes = [&](const auto& values) {
    return OrderedJson(std::vector(values.begin(), values.begin() + mesh.num_axes));
  };
  OrderedJson nodes = OrderedJson::array();
  for (const Node& node : graph.nodes) nodes.push_back(node_json(graph, node));
  const OrderedJson json{{"meta",
                          {{"version", kGraphVersion},
                           {"mesh", of_axes(mesh.shape)},
                           {"alpha", of_axes(mesh.alpha)},
                           {"beta", of_axes(mesh.beta)},
                           {"phase", graph.is_training ? "training" : "prefill"}}},
                         {"nodes", std::move(nodes)}};
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string compressed(const std::string& text) {
  constexpr int kGzip = 16 + MAX_WBITS, kMemoryLevel = 8;
  z_stream stream{};
  int code = deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, kMemoryLevel, Z_DEFAULT_STRATEGY);
  if (code != Z_OK) throw Error(ErrorCode::out_of_resources, "no memory to compress a graph");
  std::string bytes(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  code = deflate(&stream, Z_FINISH);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  SEQTILE_ASSERT(code == Z_STREAM_END);
  return bytes;
}

}  // namespace seqtile::planner
