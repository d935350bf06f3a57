"""Node vectors of a circuit and transformations of them."""
