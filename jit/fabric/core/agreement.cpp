// jit/fabric/core/agreement.cpp -- see agreement.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/core/agreement.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

namespace seqtile::fabric {
namespace {

/// A line with the problem, its code first; then a line for each value.
std::string encode(const Arguments& arguments, const std::optional<Error>& problem) {
  std::string text;
  if (problem) text = fmt::format("{} {}", static_cast<int>(problem->code()), problem->what());
  std::replace(text.begin(), text.end(), '\n', ' ');
  for (const auto& [name, value] : arguments) text += fmt::format("\n{}={}", name, value);
  return text;
}

struct Statement {
  explicit Statement(const std::string& text) {
    std::istringstream lines(text);
    std::getline(lines, problem);
    for (std::string line; std::getline(lines, line);)
      arguments.emplace_back(line.substr(0, line.find('=')), line.substr(line.find('=') + 1));
  }
  std::string value(const std::string& name) const {
    const auto found = std::ranges::find(arguments, name, &Arguments::value_type::first);
    return found == arguments.end() ? "none" : found->second;
  }
  std::string problem;
  Arguments arguments;
};

void check_same(const std::string& what, size_t rank, const Statement& first, const Statement& other) {
  const auto check = [&](const Arguments& arguments) {
    for (const auto& [name, value] : arguments) {
      const std::string wanted = first.value(name), got = other.value(name);
      if (wanted != got)
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("{}: {} is {} on rank {} and {} on rank 0; give all ranks the same", what, name, got,
                                rank, wanted));
    }
  };
  check(first.arguments);
  check(other.arguments);
}

}  // namespace

void agree(Fabric& fabric, const std::string& what, const Arguments& arguments, const std::optional<Error>& problem) {
  std::vector<Statement> statements;
  for (const std::string& text : fabric.all_gather(encode(arguments, problem))) statements.emplace_back(text);
  for (size_t rank = 1; rank < statements.size(); ++rank) check_same(what, rank, statements[0], statements[rank]);
  for (size_t rank = 0; rank < statements.size(); ++rank) {
    const std::string& text = statements[rank].problem;
    if (!text.empty())
      throw Error(static_cast<ErrorCode>(std::stoi(text)),
                  fmt::format("rank {}: {}", rank, text.substr(text.find(' ') + 1)));
  }
}

std::optional<Error> problem_in(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorCode::internal, error.what());
  }
}

}  // namespace seqtile::fabric
