"""The plain page that a browser sees where the server has no web app."""

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Shoal</title>
<style>
  body { font: 1.05rem/1.6 system-ui, sans-serif; max-width: 38rem; margin: 12vh auto; padding: 0 1.2rem; }
  code { background: #8882; padding: .15em .4em; border-radius: .3em; overflow-wrap: anywhere; }
  @media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } }
</style>
<h1>Shoal</h1>
<p>One AI model, run together by the machines of a group of people. This server only introduces them to
each other; what they say to the model travels directly between them.</p>
<p>This server was started without the page with which browsers join, so this one cannot. Whoever runs it was told
how to get that page.</p>
<p>If somebody gave you a link to this page, it is an invitation. Join from any machine with Python, with
the whole link in quotes:</p>
<p><code>shoal join 'LINK'</code></p>
<p>To talk to the model:</p>
<p><code>shoal chat 'LINK'</code></p>
</html>
"""
