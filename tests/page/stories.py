"""The stories: each takes the browser and the fleet, and fails with an AssertionError."""

import re
import time

from browser import NARROW, WIDE, Keys
from fleet import REQUEST, RUDE, eventually, get, resources, route


# The pages below those of the navigation: where to find a link to one, and its address.
BELOW = (
    ("clients?q=envoy-api-1", r"clients/\d+"),
    ("changes?type=Cluster", r"changes/c-\d+-\d+"),
    ("rollouts", r"rollouts/[a-z]+"),
    ("resources?type=Cluster&name=web", r"resource\?.*"),
)


def links(browser, selector):
    """The addresses of links within the page, without the origin."""
    addresses = [link.get_attribute("href") for link in browser.find(selector)]
    return [address.removeprefix(browser.origin + "/ui/") for address in addresses]


def pages(browser):
    """All pages of the navigation, and one of each kind below; fewer in an empty fleet."""
    browser.go("/ui/")
    found = ["", *filter(None, links(browser, "nav a"))]
    for page, pattern in BELOW:
        browser.go(f"/ui/{page}")
        found += [link for link in links(browser, "tbody th a[href]") if re.fullmatch(pattern, link)][:1]
    client = next((page for page in found if re.fullmatch(r"clients/\d+", page)), None)
    below = ("?type=Cluster", "/tail", "/diff", "/explain?type=Cluster&name=web")
    return found + [client + part for part in below if client] + ["config?generation=1&against=1"]


def every_page_loads(browser, fleet):
    """PAG-2: no line in the console, and no foreign address."""
    for page in pages(browser):
        browser.lines(), browser.addresses()
        browser.go(f"/ui/{page}")
        assert browser.find("h1"), f"/ui/{page} has no heading"
        lines = browser.lines()
        assert not lines, (page, lines)
        foreign = {address for address in browser.addresses() if not address.startswith(browser.origin + "/")}
        assert not foreign, (page, foreign)


def names_of_clients_stay_text(browser, fleet):
    """PAG-2: a node id is neither markup nor invisible."""
    browser.go("/ui/clients?q=rude")
    shown = RUDE.replace("\x1b", "\\u{1b}").replace("\u202e", "\\u{202e}")
    assert shown in browser.text(), browser.text()
    assert not browser.find("main img")
    browser.find("tbody th a")[0].click()
    assert browser.text("h1") == shown, browser.text("h1")
    assert not browser.find("main img") and "owned" not in browser.driver.title[:6]
    assert not browser.lines()


def width_beyond(browser):
    """The pixels of the page beyond the window, once the layout follows the size of the window."""
    for _ in range(30):
        wider = browser.run("return document.documentElement.scrollWidth - innerWidth")
        if wider <= 0:
            break
        time.sleep(0.1)
    return wider


def nothing_hinders_anybody(browser, fleet):
    """PAG-7: axe finds nothing, light and dark, and narrow pages do not scroll sideways."""
    found = []
    for page in pages(browser):
        for theme in ("light", "dark"):
            browser.theme(theme)
            browser.go(f"/ui/{page}")
            found += [f"/ui/{page} ({theme}): {line}" for line in browser.findings()]
        for size, zoom in ((NARROW, 1), (WIDE, 2)):
            browser.size(size, zoom)
            browser.go(f"/ui/{page}")
            wider = width_beyond(browser)
            if wider > 0:
                found.append(f"/ui/{page} is {wider} px wider than a window of {size[0] // zoom} px")
        browser.size(WIDE)
    assert not found, "\n".join(found)


def keys_are_enough(browser, fleet):
    """PAG-7: from the overview to the words of a rejection without a pointer."""
    browser.go("/ui/clients")
    browser.press(Keys.TAB)
    assert browser.run("return document.activeElement.className") == "skip"
    browser.press("/")
    browser.press("envoy-api-1")
    eventually("the search narrows the table", lambda: len(browser.find("tbody tr")) == 1)
    assert browser.driver.current_url.endswith("?q=envoy-api-1"), browser.driver.current_url
    assert browser.run("return document.activeElement.name") == "q", "the field keeps the focus"
    browser.press(Keys.TAB * 1)
    browser.run("document.activeElement.blur()")
    browser.press("j")
    browser.press(Keys.ENTER)
    eventually("the client's page", lambda: browser.text("h1") == "envoy-api-1")
    assert "Proto constraint validation failed" in browser.text(), browser.text()


def scripts_are_not_needed(browser, fleet):
    """PAG-1: forms, pages and links work without scripts."""
    browser.scripts(False)
    try:
        browser.go("/ui/clients")
        field = browser.find("input[name=q]")[0]
        field.send_keys("envoy-web-2", Keys.ENTER)
        eventually("the form narrows the table", lambda: len(browser.find("tbody tr")) == 1)
        browser.go("/ui/clients?limit=2")
        first = browser.text("tbody")
        browser.find("a[rel=next]")[0].click()
        second = browser.text("tbody")
        assert first and second and first != second
        browser.find("tbody th a")[0].click()
        assert browser.find("dl.facts")
    finally:
        browser.scripts(True)


def tabs_leave_room_for_others(browser, fleet):
    """PAG-6: a hidden tab has no stream, so that the seventh tab loads."""
    first = browser.driver.current_window_handle
    try:
        for _ in range(7):
            browser.driver.switch_to.new_window("tab")
            browser.go("/ui/clients")
            eventually("the tab is live", lambda: browser.text("#asof-word") == "live")
    finally:
        for tab in [tab for tab in browser.driver.window_handles if tab != first]:
            browser.driver.switch_to.window(tab)
            browser.driver.close()
        browser.driver.switch_to.window(first)


def a_tail_shows_what_comes_and_its_end(browser, fleet):
    """PAG-4: the lines of one client, as text, until its stream ends."""
    client = fleet.client(RUDE + "tail")
    eventually("the client is listed", lambda: browser.go("/ui/clients?q=rudetail") or browser.find("tbody th a"))
    browser.go("/ui/" + links(browser, "tbody th a")[0].split("?")[0] + "/tail")
    eventually("the page is live", lambda: browser.text("#asof-word") == "live")
    client.requests.put(REQUEST(type_url=resources.CLUSTER, resource_names_subscribe=["<img src=x>"]))
    eventually("its request", lambda: "<img src=x>" in browser.text("#tail"))
    eventually("the answer", lambda: "-> Cluster" in browser.text("#tail"))
    assert not browser.find("main img") and not browser.lines()
    client.end()
    eventually("its end", lambda: browser.text("#asof-word") == "the stream has ended")
    assert "** stream" in browser.text("#tail")


def the_page_is_live(browser, fleet):
    """PAG-6: texts change in place, rows wait for a click, and a lost relay is told."""
    browser.go("/ui/clients?q=envoy-web")
    word = lambda: browser.text("#asof-word")
    eventually("the page is live", lambda: word() == "live")
    browser.run("document.querySelector('tbody tr').mine = true")
    browser.find("tbody th a")[0].send_keys("")
    before = len(browser.find("tbody tr"))
    age = browser.text("tbody tr td:last-child")
    fleet.client("envoy-web-9")
    eventually("new rows are told", lambda: browser.text(".news"))
    assert len(browser.find("tbody tr")) == before, "rows wait for a click"
    assert browser.run("return document.querySelector('tbody tr').mine"), "the row is the same element"
    assert browser.text("tbody tr td:last-child") != age, "ages go on"
    browser.find(".news")[0].click()
    eventually("the new row", lambda: len(browser.find("tbody tr")) == before + 1)

    fleet.stop_relay()
    eventually("the page is paused", lambda: word().startswith("paused"))
    eventually("the pause has an age", lambda: browser.text("#asof-age").endswith("ago"))
    assert browser.find("tbody tr"), "the last state stays"
    fleet.start_relay()
    eventually("the page is live again", lambda: word() == "live")
    eventually("the rows of the former relay are struck out", lambda: browser.find("tbody tr.gone"))


def a_push_tells_who_stopped_it_and_in_which_words(browser, fleet):
    """WAV-19: from the overview to the words of the clients."""
    told = lambda: browser.go("/ui/") or [link for link in browser.find(".banner a") if "would have halted push" in link.text]
    eventually("the verdict", told)
    told()[0].click()
    assert "Proto constraint validation failed" in browser.text("blockquote"), browser.text()
    assert "envoy-api-1" in browser.text() and "1 of 6 clients rejected it" in browser.text(), browser.text()
    assert "rollouts/all" in links(browser, ".crumb a") and not browser.lines()


def a_plan_that_enforces_tells_what_stands_and_who_ordered_it(browser, fleet):
    """WAV-19: who froze a plan and why, what waits behind the freeze, and the command that ends it."""
    started = fleet.config()
    [plan] = started["rollouts"]
    try:
        browser.go("/ui/rollouts/all")
        eventually("the page is live", lambda: browser.text("#asof-word") == "live")
        assert not browser.find("section[data-key=orders]"), "an observing plan takes no orders"
        browser.run("document.querySelector('section[data-key=others]').mine = true")
        fleet.reload({**started, "rollouts": [{**plan, "mode": "enforce"}]})
        fleet.sluice("rollout", "freeze", "--for", "1h", "--as", "ann", "--reason", "a sale")
        fleet.plane.put(route("cart-route", "payments"))
        eventually("the page tells what waits", lambda: "What waits behind it" in browser.text())
        assert "abandoned" not in browser.text("section[data-key=orders]"), "no part of the page becomes another"
        assert browser.run("return document.querySelector('section[data-key=others]').mine"), "it is the same element"
        browser.go("/ui/rollouts/all")
        text = browser.text()
        for told in ("Frozen until", "freeze by ann", "a sale", "sluice rollout unfreeze", "changed since"):
            assert told in text, (told, text)
        assert "Nothing is held back" not in text and not browser.lines()
        assert browser.find(".banner.late"), "a freeze is no calm state"
        findings = [browser.theme(theme) or browser.findings() for theme in ("light", "dark")]
        assert findings == [[], []], findings
        browser.go("/ui/")
        eventually("the overview tells of it", lambda: "plan all begins no push: frozen" in browser.text(".banner"))
    finally:
        fleet.sluice("rollout", "unfreeze")
        fleet.plane.put(route("cart-route", "cart"))
        fleet.reload(started, "--yes")


def the_configuration_tells_its_generations_and_faults(browser, fleet):
    """PAG-4: a reload is a generation with its difference, and a fault leads from the overview to its words."""
    started = fleet.config()
    try:
        browser.go("/ui/config")
        eventually("the page is live", lambda: browser.text("#asof-word") == "live")
        assert "in force" in browser.text("dl.facts") and "sluice reload --dry-run" in browser.text()
        browser.run("document.querySelector('main').mine = true")
        fleet.reload({**started, "drain": "7s"})
        eventually("a new generation is told", lambda: browser.text(".news"))
        assert browser.run("return document.querySelector('main').mine"), "without a load"
        browser.find(".news")[0].click()
        eventually("its row", lambda: len(browser.find("tbody tr")) == 2)
        browser.find("tbody tr:first-child td:nth-child(4) a")[0].click()
        eventually("the difference", lambda: "1 key differs" in browser.text("#difference"))
        row = browser.text("#difference tbody")
        assert "drain" in row and "7s" in row and "live" in row and "not set" in row, row
        assert '"drain": "7s"' in browser.text("pre:last-of-type"), browser.text("pre")
        assert "sluice rollback --to 1 --dry-run" in browser.text()
        fleet.reload({**started, "drain": "nonsense", "lingr": "1s"})
        browser.go("/ui/")
        link = next(link for link in browser.find(".banner li > a") if "reload failed" in link.text)
        link.click()
        eventually("the page of the configuration", lambda: browser.text("h1") == "Configuration")
        banner = browser.text(".banner.bad")
        assert "drain" in banner and "lingr" in banner and "Generation 2 stays in force" in banner, banner
        findings = [browser.theme(theme) or browser.findings() for theme in ("light", "dark")]
        assert findings == [[], []], findings
        assert not browser.lines()
    finally:
        fleet.reload(started)
    eventually("the fault is over", lambda: browser.go("/ui/") or "reload failed" not in browser.text())


def an_upgrade_is_told_and_hinders_nobody(browser, fleet):
    """PAG-4, PAG-6: the page goes on over an upgrade, and tells of the former process until its streams have ended."""
    for number in range(1, 4):
        fleet.client(f"envoy-old-{number}")
    browser.go("/ui/")
    word = lambda: browser.text("#asof-word")
    eventually("the page is live", lambda: word() == "live")
    eventually("the clients are connected", lambda: get(fleet.admin, "/clients?q=envoy-old").body.count("envoy-old") >= 3)
    browser.run("document.querySelector('main').mine = true")
    browser.run("window.said = []; setInterval(() => said.push(document.getElementById('asof-word').textContent), 20)")
    browser.lines()
    fleet.stage.upgrade()
    eventually("the upgrade is told", lambda: browser.text("#predecessor"))
    told = browser.text("#predecessor")
    assert re.match(r"An upgrade is in progress: process \d+ with version \S+ still has \d+ streams? on", told), told
    findings = [browser.theme(theme) or browser.findings() for theme in ("light", "dark")]
    assert findings == [[], []], findings
    eventually("the former process is gone", lambda: not browser.find("#predecessor"))
    assert browser.run("return document.querySelector('main').mine"), "without a load"
    eventually("the page is live", lambda: word() == "live")
    said = set(browser.run("return said"))
    assert said == {"live"}, said
    lines = browser.lines()
    assert not lines, lines
    browser.go("/ui/events?kind=handover")
    assert browser.find("tbody tr"), "the new process has the events of the upgrade"


# The last but one stops the relay and starts it again, and the last replaces its process.
STORIES = [
    every_page_loads,
    names_of_clients_stay_text,
    nothing_hinders_anybody,
    keys_are_enough,
    scripts_are_not_needed,
    tabs_leave_room_for_others,
    a_tail_shows_what_comes_and_its_end,
    a_push_tells_who_stopped_it_and_in_which_words,
    the_configuration_tells_its_generations_and_faults,
    a_plan_that_enforces_tells_what_stands_and_who_ordered_it,
    the_page_is_live,
    an_upgrade_is_told_and_hinders_nobody,
]
