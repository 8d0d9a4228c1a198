// tools/cli/help/man_page.cpp -- see man_page.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/help/man_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "seqtile/compiler.h"

namespace seqtile::cli {
namespace {

/// Escapes a text for roff: dashes stay dashes, and no line is a request.
std::string roff_text(const std::string& text) {
  std::string result;
  bool is_line_start = true;
  for (const char c : text) {
    if (is_line_start && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\') result += "\\e";
    else if (c == '-') result += "\\-";
    else result += c;
    is_line_start = c == '\n';
  }
  return result;
}

std::string full_name(const CommandEntry& command) {
  return command.path.empty() ? "seqtile" : "seqtile " + command.path;
}

std::string synopsis(const CommandEntry& command) {
  std::string text = ".B " + roff_text(full_name(command)) + "\n";
  if (!command.commands.empty()) text += ".I COMMAND\n";
  for (const FlagEntry& flag : command.flags)
    if (!flag.positional.empty()) text += ".RI [ " + roff_text(flag.positional) + " ]\n";
  return text + (command.flags.empty() ? "" : ".RI [ OPTION ...]\n");
}

std::string entry(const FlagEntry& flag) {
  std::vector<std::string> names;
  for (const std::string& name : flag.names) names.push_back("\\fB" + roff_text(name) + "\\fR");
  const std::string value = flag.value.empty() ? "" : " \\fI" + roff_text(flag.value) + "\\fR";
  const std::string head = flag.positional.empty() ? fmt::format("{}{}", fmt::join(names, ", "), value)
                                                   : "\\fI" + roff_text(flag.positional) + "\\fR";
  std::string text = ".TP\n" + head + "\n" + roff_text(flag.description) + "\n";
  if (!flag.choices.empty()) text += roff_text(fmt::format("({})\n", fmt::join(flag.choices, ", ")));
  return text;
}

}  // namespace

std::string page_name(const CommandEntry& command) {
  std::string name = full_name(command);
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string man_page(const CommandEntry& command, std::span<const CommandEntry> table) {
  std::string title = page_name(command);
  std::ranges::transform(title, title.begin(), [](char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; });
  const std::string version(toolchain_version());
  std::string text = fmt::format(".TH {} 1 \"\" \"{}\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}", roff_text(title),
                                 roff_text(version.substr(0, version.find(','))), roff_text(page_name(command)),
                                 roff_text(command.description), synopsis(command));
  if (!command.commands.empty()) text += ".SH COMMANDS\n";
  for (const std::string& name : command.commands)
    for (const CommandEntry& below : table)
      if (below.path == (command.path.empty() ? name : command.path + " " + name))
        text += fmt::format(".TP\n.BR {} (1)\n{}\n", roff_text(page_name(below)), roff_text(below.description));
  text += ".SH OPTIONS\n";
  for (const FlagEntry& flag : command.flags) text += entry(flag);
  if (!command.footer.empty()) text += ".SH NOTES\n.nf\n" + roff_text(command.footer) + "\n.fi\n";
  return text;
}

}  // namespace seqtile::cli
