"""A page loads nothing and names no host: whoever opens it is not seen by anybody."""

import re

from bokeh.resources import Resources

import page_files
from edgewise.report.page.html import inline_script, without_hosts

NAMESPACES = {
    "http://www.w3.org/2000/svg",
    "http://www.w3.org/1999/xhtml",
    "http://www.w3.org/1998/Math/MathML",
    "http://www.w3.org/1999/xlink",
    "http://www.w3.org/2000/xmlns/",
    "http://www.w3.org/XML/1998/namespace",
}
"""Names of vocabularies, which nobody fetches; they must be spelt like this."""
ADDRESS = re.compile(r"(?:https?|wss?|ftp):(?:\\?/){2}[^\s\"'`)\\<>,;]+", re.IGNORECASE)


def test_the_only_addresses_in_a_page_are_namespaces(tmp_path):
    page_files.write(tmp_path / "page.html", "loops_and_parallel_edges", check=True)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert set(ADDRESS.findall(text)) <= NAMESPACES
    assert not re.search(r"<(?:script|link|img|iframe)[^>]*\b(?:src|href)\s*=\s*[\"']?(?!data:)[a-z/]", text)


def test_the_library_names_hosts_until_they_are_taken_out():
    script = "\n".join(Resources(mode="inline").js_raw)
    assert "mathjax" in script
    assert set(ADDRESS.findall(script)) - NAMESPACES
    assert set(ADDRESS.findall(without_hosts(script))) <= NAMESPACES
    assert len(inline_script()) > 100_000


def test_addresses_that_the_user_gives_stay(tmp_path):
    page_files.write(tmp_path / "page.html", "one_graph", title="see https://example.org/report")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert set(ADDRESS.findall(text)) - NAMESPACES == {"https://example.org/report"}
