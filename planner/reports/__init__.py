"""Plans and history drawn for people: text, SVG, pages and charts."""
