"""Operations on the layers of a circuit."""
