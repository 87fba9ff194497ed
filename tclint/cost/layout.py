from tclint.graph.graph import Graph


def apply_layout(graph: Graph, layout: str) -> Graph:
    return graph
