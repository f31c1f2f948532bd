"""One HTML file that explains some targets: graphs, layers, walks, tables, agreement and trust, without any network use.

The way of a page, from `api/write_page.py`: `request` checks what is asked, `page_run` runs the methods, `page_data` turns the
results into plain data (with `top_edges`, `page_scene`, `page_words`, `molecule_svg`), and `html` puts data, Bokeh's empty
figures (`page_figures`) and the page's own script (`static/`) into one file. Layouts and numbers are made here in Python; the
script chooses and draws.
"""
