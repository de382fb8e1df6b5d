"""Write the generated pages of docs/reference."""

from . import FOLDER, pages

for name, text in pages().items():
    path = FOLDER / name
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
        print(f"wrote {path.resolve().relative_to(FOLDER.parents[1])}")
