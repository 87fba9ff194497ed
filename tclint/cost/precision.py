from tclint.graph.graph import Graph


def apply_precision(graph: Graph, precision: str, mode: str) -> Graph:
    return graph
