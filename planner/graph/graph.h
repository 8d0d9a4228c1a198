// planner/graph/graph.h -- a model as a graph of operators, and the ways in which each can be cut over the mesh.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <map>
#include <string>
#include <vector>

#include "planner/graph/mesh.h"

namespace seqtile::planner {

constexpr int64_t kMostElements = int64_t{1} << 40;  ///< of a tensor

struct TensorType {
  std::vector<int64_t> shape;
  std::string dtype;  ///< "f32"
  int64_t element_bytes = 4;
};

/// One way to compute an operator: how it wants its operands, how it leaves its results, and what a device pays.
struct Strategy {
  std::string name;
  std::vector<std::vector<Layout>> operands;  ///< by input, by member of that node's result
  std::vector<Layout> results;                ///< by member
  double compute = 0, communication = 0;
  double memory = 0;                              ///< bytes that are held all the time
  int kernels = 0, measured = 0;                  ///< how many times are in `compute`, and of them from measurements
  std::map<std::string, Layout> parameters = {};  ///< of the node's own those of which it is known how they are held
  double activation = 0, gradient = 0;            ///< bytes of the results, of the parameters' gradients: for a while
  double held() const { return memory + activation + gradient; }
};

/// Of a get_attr: what it holds.
enum class Role {
  parameter,  ///< trained: with a gradient and an optimiser's state
  frozen,     ///< a parameter without these
  buffer,     ///< a constant of the model
};

struct Node {
  std::string name, op, target;     ///< op: placeholder get_attr call_function call_method call_module output
  std::vector<int> inputs;          ///< nodes before this one
  std::vector<TensorType> results;  ///< several for a tuple, none for the output
  bool is_tuple = false;
  bool merges = false;  ///< cheap enough to take the layout that its first input leaves
  std::string module;   ///< "Conv2d"
  std::map<std::string, std::vector<int64_t>> parameters;
  std::string description;             ///< of the module, with its arguments
  std::vector<std::string> arguments;  ///< as they were written: names of nodes, numbers
  Role role = Role::parameter;         ///< of a get_attr
  std::vector<Strategy> strategies;
};

struct Graph {
  Mesh mesh;
  std::vector<Node> nodes;  ///< producers before consumers
  bool is_training = true;  ///< a backward pass follows, and parameters have gradients
};

}  // namespace seqtile::planner
