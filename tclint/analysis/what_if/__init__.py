"""What-ifs: the graph under other circumstances or with other layers, priced again."""
