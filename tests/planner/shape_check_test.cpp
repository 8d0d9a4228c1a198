// tests/planner/shape_check_test.cpp -- shapes that an operator cannot have.
// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/shape_check.h"

#include <catch2/catch.hpp>

#include "tests/planner/graph_maker.h"

namespace seqtile::testing {
namespace {

using namespace planner;

/// The contradiction in a function of tensors a, b, ... of these shapes; empty without one.
std::string of_function(const std::string& target, const std::vector<PlanShape>& shapes, PlanShape result) {
  GraphMaker maker({1, {2}, {1}, {1}}, "f32", 4);
  std::vector<int> inputs;
  for (const PlanShape& shape : shapes)
    inputs.push_back(maker.placeholder(std::string(1, static_cast<char>('a' + inputs.size())), shape));
  const Graph graph = maker.output(maker.function("y", target, inputs, std::move(result)));
  return contradiction(graph, graph.nodes[inputs.size()]);
}

std::string of_module(const std::string& type, PlanShape x, PlanShape weight, PlanShape result) {
  GraphMaker maker({1, {2}, {1}, {1}}, "f32", 4);
  const int input = maker.placeholder("x", std::move(x));
  const Graph graph = maker.output(maker.module("y", type, input, std::move(result), std::move(weight)));
  return contradiction(graph, graph.nodes[1]);
}

}  // namespace

TEST_CASE("plan shapes: those that an operator has are taken", "[plan]") {
  const auto is_taken = [](const std::string& target, const std::vector<PlanShape>& shapes, PlanShape result) {
    INFO(target);
    CHECK(of_function(target, shapes, std::move(result)).empty());
  };
  is_taken("torch.relu", {{8, 4}}, {8, 4});
  is_taken("_operator.add", {{8, 1, 4}, {3, 1}}, {8, 3, 4});
  is_taken("_operator.mul", {{8, 4}, {}}, {8, 4});
  is_taken("torch.nn.functional.embedding", {{8, 3}, {100, 16}}, {8, 3, 16});
  is_taken("torch.embedding", {{100, 16}, {8, 3}}, {8, 3, 16});
  is_taken("where", {{4}, {8, 1}, {}}, {8, 4});
  is_taken("torch._C._nn.linear", {{2, 8, 4}, {6, 4}}, {2, 8, 6});
  is_taken("torch._C._nn.linear", {{2, 8, 4}, {6, 4}, {6}}, {2, 8, 6});
  is_taken("torch._C._nn.linear", {{2, 8, 4}, {4}}, {2, 8});  // a weight that is a vector
  is_taken("matmul", {{5, 1, 2, 3}, {7, 3, 4}}, {5, 7, 2, 4});
  is_taken("matmul", {{3}, {3, 4}}, {4});
  is_taken("bmm", {{5, 3, 3}}, {5, 3, 3});  // inputs name a tensor once that the operator reads twice
  is_taken("view", {{8, 6}}, {2, 4, 6});
  is_taken("transpose", {{8, 6, 2}}, {6, 8, 2});
  is_taken("silu_and_mul", {{8, 6}}, {8, 3});
  is_taken("to", {{8, 6}, {1}}, {8, 6});  // to the dtype of another tensor
  is_taken("unheard_of", {{8, 6}}, {5});
  is_taken("torch.arange", {}, {5});
  CHECK(of_module("Linear", {2, 8, 4}, {6, 4}, {2, 8, 6}).empty());
  CHECK(of_module("Embedding", {2, 8}, {100, 6}, {2, 8, 6}).empty());
  CHECK(of_module("LayerNorm", {2, 8}, {8}, {2, 8}).empty());
}

TEST_CASE("plan shapes: a contradiction names the node, its operator and all shapes", "[plan]") {
  const auto is_refused = [](const std::string& target, const std::vector<PlanShape>& shapes, PlanShape result,
                             const std::string& why) {
    CHECK_THAT(of_function(target, shapes, std::move(result)), Catch::Contains(why));
  };
  is_refused("_operator.getitem", {}, {8, 5},
             "node y: getitem makes a tensor of a tensor, and no input is one; the program that wrote the graph left");
  is_refused("torch._C._nn.linear", {}, {8, 5}, "export the model again");
  is_refused("torch.relu", {{8, 4}}, {8, 5},
             "shapes of node y contradict each other: relu of a [8, 4] gives [8, 4], \"out\" says [8, 5]");
  is_refused("softmax", {{8, 4}}, {4, 8}, "softmax of a [8, 4] gives [8, 4], \"out\" says [4, 8]");
  is_refused("add", {{8, 4}, {8, 5}}, {8, 5}, "add of a [8, 4], b [8, 5] gives nothing: their extents differ");
  is_refused("add", {{8, 4}, {4}}, {8, 8}, "gives [8, 4]");
  is_refused("add", {{8, 1}, {8, 1}}, {8, 8}, "gives [8, 1]");
  is_refused("linear", {{8, 4}, {6, 5}}, {8, 6}, "gives nothing: the weight [6, 5] takes rows of 5 elements");
  is_refused("linear", {{8, 4}, {6, 4}}, {8, 5}, "gives [8, 6]");
  is_refused("linear", {{8, 4}, {6, 4}, {7}}, {8, 6}, "gives nothing: a bias of [6] is wanted, not [7]");
  is_refused("linear", {{8, 4}, {}}, {8, 6}, "gives nothing: a weight has one or two dimensions");
  is_refused("matmul", {{2, 3}, {4, 5}}, {2, 5}, "gives nothing: columns of 3 elements are wanted of the second");
  is_refused("matmul", {{2, 2, 3}, {3, 3, 5}}, {2, 2, 5}, "gives nothing: their leading extents differ");
  is_refused("matmul", {{2, 3}, {3, 5}}, {5, 2}, "gives [2, 5]");
  is_refused("view", {{8, 6}}, {2, 4, 7}, "gives 48 elements");
  is_refused("permute", {{8, 6}}, {6, 6}, "gives these extents in another order");
  is_refused("silu_and_mul", {{8, 6}}, {8, 6}, "gives [8, 3]");
  is_refused("silu_and_mul", {{8, 5}}, {8, 3}, "two halves");
  CHECK_THAT(of_module("Linear", {2, 8, 4}, {6, 4}, {2, 7, 6}),
             Catch::Contains("Linear of x [2, 8, 4] gives [2, 8, 6]"));
  CHECK_THAT(of_module("Embedding", {2, 8}, {100, 6}, {2, 8, 5}), Catch::Contains("gives [2, 8, 6]"));
  CHECK_THAT(of_module("RMSNorm", {2, 8}, {8}, {2, 9}), Catch::Contains("gives [2, 8]"));
}

}  // namespace seqtile::testing
