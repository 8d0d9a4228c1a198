// tools/cli/operations.cpp -- "seqtile operations": which operations there are, and the fields that --set takes.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

/// Returns the listed fields; none where the operation lists none.
std::vector<autotune::FieldInfo> fields_of(const autotune::OpDef& op) {
  return op.fields ? op.fields() : std::vector<autotune::FieldInfo>{};
}

std::string default_of(const autotune::FieldInfo& field) {
  if (field.is_required) return "none: give it";
  return field.fallback.empty() ? "follows other fields" : field.fallback;
}

Json json_of(const autotune::OpDef& op) {
  Json fields = Json::array();
  for (const autotune::FieldInfo& field : fields_of(op)) {
    Json one{{"field", field.name}, {"values", field.values}};
    if (!field.fallback.empty()) one["default"] = field.fallback;
    if (field.is_required) one["required"] = true;
    fields.push_back(std::move(one));
  }
  return {
      {"operation", op.name}, {"summary", op.summary}, {"over_ranks", bool(op.on_rank)}, {"fields", std::move(fields)}};
}

void print_all(const autotune::Registry& registry) {
  Table table({"operation", "what it computes"});
  for (const auto& op : registry.ops()) table.add({op->name, op->summary});
  table.print();
  print_line("the fields of one: seqtile operations NAME");
}

void print_fields(const autotune::OpDef& op) {
  print_line(op.name + ": " + op.summary + (op.on_rank ? " (over ranks: --ranks, --fabric)" : ""));
  Table table({"  field", "values", "default"});
  for (const autotune::FieldInfo& field : fields_of(op))
    table.add({"  " + field.name, field.values, default_of(field)});
  table.print();
}

int list_operations(const Session& session, const Options& options) {
  Json operations = Json::array();
  if (options.operation.empty()) {
    print_all(session.registry);
    for (const auto& op : session.registry.ops()) operations.push_back(json_of(*op));
  } else {
    const autotune::OpDef& op = session.registry.find(options.operation);
    print_fields(op);
    operations.push_back(json_of(op));
  }
  if (options.json) print_json({{"operations", std::move(operations)}});
  return kDone;
}

}  // namespace

void add_operations(CLI::App& app, Session& session) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = add_command(app, session, "operations", "List the operations, or the fields of one",
                                  "  seqtile operations\n  seqtile operations linear", options, list_operations);
  command.add_option("operation", options->operation, "Name of the operation, for example linear");
}

}  // namespace seqtile::cli
