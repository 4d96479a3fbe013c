"""The page's server: Flask on loopback, for this host alone.

A page has no state but its address, nothing is changed by a request, and no other site's page may ask: requests under
another host's name (as a site that points its own name here would send them) or from another origin are refused.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from isa_models import SimdnnError, Unimplemented
from isa_models.errors import how_to_install
from simdnn.teach import comparison, instruction, kernel, loop
from simdnn.teach.forms import Page, Query

if TYPE_CHECKING:
    from flask import Flask, Response

HOST = "127.0.0.1"
VIEWS: dict[str, ModuleType] = {
    "instruction": instruction,
    "kernel": kernel,
    "comparison": comparison,
    "loop": loop,
}
Link = Callable[[str, Mapping[str, str]], str]  # the address of a view with texts in its fields
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page(view: str, texts: Mapping[str, str]) -> Page:
    """A view's form and answer; where there is none, the package's message. Without texts, its first example."""
    module = VIEWS[view]
    query = Query(texts or module.EXAMPLES[0][1])
    try:
        groups = module.groups(query)
    except SimdnnError as error:
        return Page(module.groups(Query({})), error=str(error))
    try:
        answer, more = module.answer(query)
    except (SimdnnError, OSError) as error:
        return Page(groups, error=str(error))
    return Page((*groups[:1], *more, *groups[1:]), answer)


def create_app() -> Flask:
    """The WSGI application. Raises `Unimplemented` where Flask is not installed."""
    try:
        import flask
    except ImportError:
        raise Unimplemented(f"the page needs Flask, which is an optional part: {how_to_install('teach')}") from None
    app = flask.Flask(__name__)
    app.config["TRUSTED_HOSTS"] = [HOST, "localhost"]

    @app.before_request
    def refuse_other_origins() -> tuple[str, int] | None:
        origin = flask.request.headers.get("Origin")
        site = flask.request.headers.get("Sec-Fetch-Site", "none")
        if (origin and urlsplit(origin).netloc != flask.request.host) or site not in ("none", "same-origin"):
            return "Pages of another origin are not answered; open the address itself.\n", 403
        return None

    @app.after_request
    def with_headers(response: Response) -> Response:
        response.headers.update(_HEADERS)
        return response

    @app.get("/")
    def index() -> str:
        return render("", {}, _link)

    @app.get("/<view>")
    def of_view(view: str) -> tuple[str, int]:
        if view not in VIEWS:
            return render("", {}, _link), 404
        return render(view, flask.request.args.to_dict(), _link), 200

    return app


def render(view: str, texts: Mapping[str, str], link: Link, *, live: bool = True) -> str:
    """The HTML of a view, "" for the first page; `live` where a server answers the form."""
    import flask

    shown = {"views": VIEWS, "view": view, "link": link, "live": live}
    if not view:
        return flask.render_template("index.html", **shown)
    found = page(view, texts)
    return flask.render_template(f"{view}.html", module=VIEWS[view], page=found, answer=found.answer, **shown)


def _link(view: str, texts: Mapping[str, str]) -> str:
    import flask

    if view.startswith("static/"):
        return flask.url_for("static", filename=view.removeprefix("static/"))
    path = flask.url_for("of_view", view=view) if view else flask.url_for("index")
    return f"{path}?{urlencode(texts)}" if texts else path


def serve(port: int, opened: Callable[[str], Any]) -> None:
    """Serve until Ctrl-C. `opened` is told the address once the port is listened at (0: any free one).

    Raises `SimdnnError` for a port that is taken or may not be used.
    """
    app = create_app()
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            """Requests are no news."""

    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except OSError as error:
            said = f"port {port} of {HOST}: {error.strerror or error}"
            raise SimdnnError(f"{said}; --port N takes another one, --port 0 any that is free") from None
        listening.listen()
        bound = listening.getsockname()[1]
        server = make_server(HOST, bound, app, threaded=True, request_handler=Quiet, fd=listening.fileno())
        try:
            opened(f"http://{HOST}:{bound}/")
            server.serve_forever()
        finally:
            server.server_close()
