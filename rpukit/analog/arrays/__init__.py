"""Arrays of cells: their weights and planes, one array or several a tile."""
