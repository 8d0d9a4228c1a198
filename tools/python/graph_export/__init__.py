# tools/python/graph_export/__init__.py -- the parts of export_graph.py.
# SPDX-License-Identifier: Apache-2.0
"""Options, the model, its trace, the rows of the file: one module each, in this order."""
