"""Chromium, and the judge of accessibility."""

import json

from selenium import webdriver
from selenium.webdriver.common.by import By  # noqa: F401
from selenium.webdriver.common.keys import Keys  # noqa: F401

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
# Requests that the browser makes for itself, and not for a page.
OWN = ("data:", "chrome:", "chrome-extension:", "about:")
WIDE, NARROW = (1280, 900), (360, 740)


class Browser:
    """A browser with a new profile, on the pages of one relay."""

    def __init__(self, chromium, driver, directory, port, axe):
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={directory}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        # Pages poll, so that a page's load never counts as finished otherwise.
        options.page_load_strategy = "normal"
        service = webdriver.ChromeService(executable_path=driver)
        self.driver = webdriver.Chrome(options=options, service=service)
        self.driver.set_page_load_timeout(20)
        self.origin = f"http://127.0.0.1:{port}"
        self.axe = axe

    def end(self):
        self.driver.quit()

    def go(self, path):
        self.driver.get(self.origin + path)

    def cdp(self, command, **arguments):
        return self.driver.execute_cdp_cmd(command, arguments)

    def size(self, size, zoom=1):
        """A window's size in CSS pixels; with a zoom of 2 half of them are left."""
        width, height = (side // zoom for side in size)
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=zoom, mobile=False)

    def theme(self, name):
        # Without motion: a colour on its way from one scheme to the other has the contrast of neither.
        features = {"prefers-color-scheme": name, "prefers-reduced-motion": "reduce"}
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": key, "value": value} for key, value in features.items()])

    def scripts(self, on):
        self.cdp("Emulation.setScriptExecutionDisabled", value=not on)

    def find(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector="main"):
        """The text that a reader sees; empty without the element."""
        found = self.find(selector)
        return found[0].text if found else ""

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys):
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def lines(self):
        """The lines of the console since the last call."""
        return [line["message"] for line in self.driver.get_log("browser")]

    def addresses(self):
        """The addresses of all requests since the last call."""
        found = set()
        for line in self.driver.get_log("performance"):
            message = json.loads(line["message"])["message"]
            if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                parameters = message["params"]
                found.add(parameters.get("request", parameters)["url"])
        return {address for address in found if not address.startswith(OWN)}

    def findings(self):
        """The findings of axe on this page, a line each."""
        self.run(self.axe)
        options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
        script = "const done = arguments[1]; axe.run(document, arguments[0]).then(r => done(r.violations), e => done([{id: String(e), nodes: []}]))"
        found = self.driver.execute_async_script(script, options)
        return [f"{one['id']}: {node['html'][:160]}" for one in found for node in one["nodes"] or [{"html": ""}]]

    def picture(self, file):
        """A picture of the whole page."""
        shot = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        import base64

        file.write_bytes(base64.b64decode(shot["data"]))
