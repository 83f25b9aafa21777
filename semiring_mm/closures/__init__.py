"""What every elimination needs, wherever its matrix lies."""
