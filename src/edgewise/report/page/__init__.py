"""One HTML file that explains some targets: graphs, layers, walks, tables, agreement and trust, without any network use.

The way of a page, from `api/write_page.py`: `page_run` checks what is asked and runs the methods, `page_data` turns the
results into plain data (with `top_edges`, `page_scene`, `page_words`), and `html` puts data, Bokeh's empty figures and
the page's own script (`static/*.js`) into one file. Layouts and numbers are made here in Python; the script chooses and
draws.
"""
