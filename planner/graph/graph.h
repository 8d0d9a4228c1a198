// planner/graph/graph.h -- a model as a graph of operators, and the strategies of each over the mesh.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <map>
#include <string>
#include <vector>

#include "planner/graph/mesh.h"

namespace seqtile::planner {

constexpr int64_t kMostElements = int64_t{1} << 40;  ///< upper limit of the elements of a tensor

struct TensorType {
  std::vector<int64_t> shape;
  std::string dtype;  ///< for example "f32"
  int64_t element_bytes = 4;
};

/// One way to compute an operator: the layouts of its operands and results, and what a device pays.
struct Strategy {
  std::string name;
  std::vector<std::vector<Layout>> operands;  ///< by input, by member of that input's result
  std::vector<Layout> results;                ///< by member of the result
  double compute = 0, communication = 0;
  double memory = 0;              ///< bytes that are held all the time
  int kernels = 0, measured = 0;  ///< number of kernel times in `compute`, and how many of them were measured
  std::map<std::string, Layout> parameters = {};  ///< layouts of the node's own parameters, as far as known
  double activation = 0, gradient = 0;  ///< bytes that are held for a while: results, and gradients of parameters
  double held() const { return memory + activation + gradient; }
};

/// The contents of a get_attr node.
enum class Role {
  parameter,  ///< is trained: has a gradient and optimiser state
  frozen,     ///< is not trained: has neither
  buffer,     ///< a constant of the model
};

struct Node {
  std::string name, op, target;     ///< op: placeholder get_attr call_function call_method call_module output
  std::vector<int> inputs;          ///< indices of earlier nodes
  std::vector<TensorType> results;  ///< several for a tuple, none for the output
  bool is_tuple = false;
  bool merges = false;  ///< may take its layout from its first input
  std::string module;   ///< class of the module: "Conv2d"
  std::map<std::string, std::vector<int64_t>> parameters;
  std::string description;             ///< the module with its arguments
  std::vector<std::string> arguments;  ///< as written: names of nodes, numbers
  Role role = Role::parameter;         ///< only for a get_attr
  std::vector<Strategy> strategies;
};

struct Graph {
  Mesh mesh;
  std::vector<Node> nodes;  ///< producers before consumers
  bool is_training = true;  ///< a backward pass follows, and parameters have gradients
};

}  // namespace seqtile::planner
