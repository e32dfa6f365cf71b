"""The environment's proxies are read as other tools read them."""

import pytest

from pipeline.host.proxies import proxy_for

ENV = {"http_proxy": "http://one:3128", "HTTPS_PROXY": "two:8080", "no_proxy": "near.test,.inside"}


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("http://far.test/v1", "http_proxy"),
        ("https://far.test/v1", "HTTPS_PROXY"),
        ("http://near.test:8000/v1", None),
        ("http://node.inside/v1", None),
        ("http://localhost:8000/v1", None),
        ("http://127.0.0.1:8000/v1", None),
    ],
)
def test_a_proxy_is_named_by_scheme_and_no_proxy_goes_without(url, variable):
    found = proxy_for(url, ENV)
    assert (found.variable if found else None) == variable


def test_a_proxy_for_everything_stands_in_and_no_password_is_shown():
    found = proxy_for("https://far.test/v1", {"ALL_PROXY": "http://me:secret@gate:81/"})
    assert found is not None
    assert (found.host, found.port, found.credentials) == ("gate", 81, "me:secret")
    assert str(found) == "the proxy gate:81 of $ALL_PROXY"


def test_everything_may_be_excluded():
    assert proxy_for("http://far.test/v1", ENV | {"no_proxy": "*"}) is None


def test_a_proxy_of_another_kind_is_refused_by_its_variable():
    with pytest.raises(ValueError, match=r"\$all_proxy .*NO_PROXY"):
        proxy_for("http://far.test", {"all_proxy": "socks5://gate:1080"})
