#!/usr/bin/env python3
"""The report in a real browser: clicks through it and compares with the run's files.

    apt-get install chromium chromium-driver; pip install selenium
    cargo build -p hapo-cli
    python3 scripts/end-to-end/browser_test.py [--hapo target/debug/hapo] [--out DIR]

Trains recipes/smoke.toml, so it takes a minute. Screenshots go to DIR (default: a temporary folder).
"""

import argparse
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import synthetic_runs  # noqa: E402


def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for it in ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000", "--hide-scrollbars"]:
        options.add_argument(it)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))


def look(driver, scheme, width=1280, height=1000):
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def ready(driver, at_least=0, seconds=60):
    WebDriverWait(driver, seconds).until(lambda it: float(it.find_element(By.TAG_NAME, "body").get_attribute("data-ready") or -1) >= at_least)


def metrics_of(folder):
    found = {}
    for line in open(folder / "metrics.jsonl"):
        if line.endswith("\n"):
            it = json.loads(line)
            found[it["step"]] = it
    return found


def shown_number(value):
    """A number as the page writes it: six significant digits."""
    if value is None:
        return None
    return value if float(value).is_integer() else float(f"{value:.6g}")


def numbers_on_screen(driver, run=0):
    rows = driver.execute_script(
        "return [...document.querySelectorAll('#numbers-table tbody tr')].map(r => [r.cells[0].textContent, r.cells[arguments[0] + 1].textContent])", run
    )
    return dict(rows)


def text_of(driver, selector):
    """What an element says, read in one go: the page may replace it at any time."""
    return driver.execute_script("return document.querySelector(arguments[0])?.innerText", selector)


def go_to(driver, step):
    box = driver.find_element(By.ID, "step")
    driver.execute_script("arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))", box, step)
    WebDriverWait(driver, 10).until(lambda it: text_of(it, "#numbers-table caption") == f"Step {step}")


def same_numbers(driver, logged, step):
    go_to(driver, step)
    shown = numbers_on_screen(driver)
    expected = {key: value for key, value in logged[step].items() if key != "step"}
    for key, value in expected.items():
        text = shown[key]
        if value is None:
            assert text == "–", (step, key, text)
        else:
            assert math.isclose(float(text), shown_number(value), rel_tol=1e-12), (step, key, text, value)
    return len(expected)


def clean(driver):
    bad = [it for it in driver.get_log("browser") if it["level"] == "SEVERE" and "net::ERR" not in it["message"]]  # a server that is killed
    assert not bad, bad


def five_runs(driver, hapo, work, out):
    folder = work / "synthetic"
    subprocess.run([sys.executable, pathlib.Path(__file__).parent / "synthetic_runs.py", folder], check=True)
    page = work / "five.html"
    began = time.time()
    subprocess.run([hapo, "report", folder, "-o", page], check=True, stdout=subprocess.DEVNULL)
    made = time.time() - began
    size = page.stat().st_size
    assert size < 10e6, size
    driver.get(page.as_uri())
    ready(driver)
    WebDriverWait(driver, 10).until(lambda it: it.execute_script("return performance.getEntriesByName('shown').length"))
    # What makes it quick is that figures far from the screen are not put into the page. A clock would measure the machine's load.
    near, every = driver.execute_script("return [document.querySelectorAll('#charts svg.chart').length, document.querySelectorAll('#charts figure').length]")
    assert every == 13 and 3 <= near <= 9, (near, every)
    shown = driver.execute_script("return performance.getEntriesByName('shown')[0].startTime") / 1000
    logged = metrics_of(folder / "run-0")
    for step in [1, 777, 2000]:
        same_numbers(driver, logged, step)
    for scheme in ["light", "dark"]:
        look(driver, scheme, 1280, 1400)
        time.sleep(0.5)
        driver.save_screenshot(str(out / f"five-{scheme}.png"))
    boxes = driver.find_elements(By.CSS_SELECTOR, "#cards input")
    assert len(boxes) == 5
    before = driver.execute_script("return document.querySelectorAll('#figure-reward .legend li').length")
    assert before == 6, before  # run-0 and run-2… by twos: three recipes, two metrics
    # Seeds of a band are shown and hidden together.
    for it in [boxes[2], boxes[4]]:
        it.click()
    assert [it.is_selected() for it in boxes] == [True, True, False, False, False]
    assert driver.execute_script("return document.querySelectorAll('#figure-reward .legend li').length") == 2
    assert len(driver.find_elements(By.CSS_SELECTOR, "#figure-reward .plot .band")) == 4
    pointer(driver, logged)
    driver.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert len(driver.find_elements(By.CSS_SELECTOR, "#charts svg.chart")) == 13
    differs = [it.text for it in driver.find_elements(By.CSS_SELECTOR, "#recipes tr.differs th")]
    assert {"optim.lr", "seed", "name"} <= set(differs), differs
    clean(driver)
    print(f"5 runs × 2000 steps: {size / 1e6:.2f} MB, made in {made:.1f} s, on screen in {shown:.2f} s")


def pointer(driver, logged):
    """The step and the values under the pointer, and a line that its name hides."""
    driver.execute_script("document.getElementById('figure-kl').scrollIntoView({ block: 'center', behavior: 'instant' })")
    WebDriverWait(driver, 10).until(lambda it: it.find_elements(By.CSS_SELECTOR, "#figure-kl .plot svg.chart"))
    svg = driver.find_element(By.CSS_SELECTOR, "#figure-kl .plot svg.chart")
    ActionChains(driver).move_to_element_with_offset(svg, 40, 0).perform()
    tip = text_of(driver, "#figure-kl .tip")
    step = int(tip.split("\n")[0].removeprefix("step "))
    # KL is measured every ten steps, and the pointer finds the nearest.
    assert step % 10 == 0 and 1000 < step < 1400, tip
    assert float(tip.split("\n")[-1]) == float(f"{logged[step]['policy/kl_to_initial']:.4g}"), tip
    x = float(driver.execute_script("return document.querySelector('#figure-kl .cursor').getAttribute('x1')").removesuffix("%"))
    assert math.isclose(x, 100 * (step - 1) / 1999, rel_tol=1e-9), x
    line = driver.find_element(By.CSS_SELECTOR, "#figure-reward .plot [data-line='0']")
    toggle = driver.find_element(By.CSS_SELECTOR, "#figure-reward .legend .toggle")
    for shown in [False, True]:
        driver.execute_script("arguments[0].click()", toggle)
        assert (line.value_of_css_property("display") != "none", toggle.get_attribute("aria-pressed")) == (shown, str(shown).lower())


def hostile(driver, hapo, work, out):
    page = work / "hostile.html"
    subprocess.run([hapo, "report", work / "synthetic-hostile", "-o", page], check=True, stdout=subprocess.DEVNULL)
    driver.get(page.as_uri())
    ready(driver)
    WebDriverWait(driver, 20).until(lambda it: len(it.find_elements(By.CSS_SELECTOR, "#rollout-group .member")) == 8)
    shown = driver.execute_script("return [...document.querySelectorAll('#rollout-group .member pre')].map(it => it.textContent)")
    for (name, text), got in zip(synthetic_runs.HOSTILE.items(), shown):
        # The script cuts by UTF-16 units, as the browser counts.
        units = len(text.encode("utf-16-le")) // 2
        if units <= 2000:
            assert got == (text or "(empty)"), (name, got)
        else:
            assert got.endswith("…") and text.startswith(got[:-1]) and "\ud83d…" not in got, name
    button = driver.find_element(By.XPATH, "//button[starts-with(., 'show all (1,000,007')]")
    driver.execute_script("arguments[0].click()", button)
    whole = driver.execute_script("return document.querySelectorAll('#rollout-group .member pre')[5].textContent")
    assert whole == synthetic_runs.HOSTILE["million"]
    assert driver.execute_script("return document.body.dataset.pwned === undefined && !document.getElementById('injected-markup')")
    assert driver.execute_script("return document.querySelectorAll('#main script, #main img').length") == 0
    prompt = driver.find_element(By.CSS_SELECTOR, "#rollout-group .card pre").get_attribute("textContent")
    assert prompt == synthetic_runs.HOSTILE["script"] + synthetic_runs.HOSTILE["rtl"]
    Select(driver.find_element(By.ID, "rollout-verdict")).select_by_value("unparsable")
    assert "<b>no answer found</b>" in driver.find_element(By.ID, "rollout-group").text
    Select(driver.find_element(By.ID, "rollout-verdict")).select_by_value("all")
    look(driver, "light", 1280, 1400)
    driver.execute_script("document.getElementById('rollouts').scrollIntoView()")
    time.sleep(0.3)
    driver.save_screenshot(str(out / "hostile.png"))
    clean(driver)
    print("hostile rollouts are text")


def real_report(driver, hapo, run, work, out):
    page = work / "real.html"
    figures = work / "figures"
    subprocess.run([hapo, "report", run, "-o", page, "--figures", figures], check=True, stdout=subprocess.DEVNULL)
    assert len(list(figures.glob("*.svg"))) >= 12
    look(driver, "light")
    driver.get(page.as_uri())
    ready(driver)
    logged = metrics_of(run)
    checked = sum(same_numbers(driver, logged, step) for step in logged)
    # The keyboard moves all figures together.
    chart = driver.find_element(By.CSS_SELECTOR, "#figure-reward .frame")
    driver.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.HOME)
    chart.send_keys(Keys.ARROW_RIGHT)
    values = driver.execute_script("return [...document.querySelectorAll('#figure-reward output')].map(it => Number(it.textContent))")
    assert values == [float(f"{logged[2][it]:.4g}") for it in ["reward/policy_only", "reward/mean"]], values
    driver.execute_script("document.getElementById('step-after').click()")
    WebDriverWait(driver, 5).until(lambda it: text_of(it, "#numbers-table caption") == "Step 3")
    # Rollouts: every step, every filter, what the browser counts against what was logged.
    steps = [int(it.get_attribute("value")) for it in Select(driver.find_element(By.ID, "rollout-step")).options]
    for step in steps:
        Select(driver.find_element(By.ID, "rollout-verdict")).select_by_value("all")
        Select(driver.find_element(By.ID, "rollout-step")).select_by_value(str(step))
        groups = logged[step]["groups/all_fail"] + logged[step]["groups/all_solved"] + logged[step]["groups/partially_solved"]
        WebDriverWait(driver, 10).until(lambda it: text_of(it, "#rollout-note").startswith(f"{groups} of {groups} groups"))
        time.sleep(0.1)
        counts = [it.text for it in driver.find_elements(By.CSS_SELECTOR, "#rollout-groups small")]
        assert sum(int(it.split(" ")[0]) for it in counts) == logged[step]["verify/correct"], (step, counts)
        injected = sum("teacher entered" in it for it in counts)
        assert injected == round(logged[step]["gate/beta"] * groups), (step, counts)
        Select(driver.find_element(By.ID, "rollout-verdict")).select_by_value("injected")
        listed = driver.find_elements(By.CSS_SELECTOR, "#rollout-groups li")
        assert len(listed) == injected
        if injected:
            roles = [it.get_attribute("class") for it in driver.find_elements(By.CSS_SELECTOR, "#rollout-group .pair:first-of-type .member")]
            assert roles == ["member wrong replaced", "member correct teacher"], roles
    # Arrow keys.
    Select(driver.find_element(By.ID, "rollout-verdict")).select_by_value("all")
    Select(driver.find_element(By.ID, "rollout-step")).select_by_value("1")
    time.sleep(0.3)
    group = driver.find_element(By.ID, "rollout-group")
    group.send_keys(Keys.ARROW_RIGHT)
    current = driver.execute_script("return [...document.querySelectorAll('#rollout-groups button')].findIndex(it => it.getAttribute('aria-current') === 'true')")
    assert current == 1, current
    group.send_keys(Keys.ARROW_DOWN)
    assert driver.execute_script("return document.activeElement.classList.contains('member')")
    driver.switch_to.active_element.send_keys(Keys.SHIFT, Keys.ARROW_RIGHT)
    time.sleep(0.3)
    assert Select(driver.find_element(By.ID, "rollout-step")).first_selected_option.text == "2"
    for scheme, width in [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)]:
        look(driver, scheme, width, 1600)
        for place in ["runs", "figures", "evaluation", "rollouts"]:
            driver.execute_script("document.getElementById(arguments[0]).scrollIntoView()", place)
            time.sleep(0.3)
            driver.save_screenshot(str(out / f"real-{scheme}-{width}-{place}.png"))
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width, (scheme, width, wide)
    look(driver, "light")
    clean(driver)
    print(f"{checked} numbers on screen are those of metrics.jsonl; rollouts of {len(steps)} steps agree")


def growing(driver, hapo, recipe, work, out):
    run, page = work / "growing", work / "growing.html"
    train = [hapo, "--threads", "1", "train", recipe, "--run-dir", run, "--set", "steps=24", "--quiet"]
    process = subprocess.Popen(train)
    while not (run / "metrics.jsonl").exists():
        time.sleep(0.1)
    view = subprocess.Popen([hapo, "report", run, "-o", page, "--every", "1"], stdout=subprocess.DEVNULL)
    try:
        while not page.exists():
            time.sleep(0.1)
        driver.get(page.as_uri())
        ready(driver, 9)
        # The page follows a run that is killed behind its last checkpoint, resumed, done.
        process.send_signal(signal.SIGKILL)
        process.wait()
        state = lambda text: WebDriverWait(driver, 30).until(lambda it: text in text_of(it, "#cards"))
        state("no process trains")
        killed_at = max(metrics_of(run))
        with open(run / "metrics.jsonl", "a") as file:
            file.write('{"step": %d, "torn' % (killed_at + 1))
        state("incomplete")
        subprocess.run([*train, "--resume"], check=True)
        assert view.wait(30) == 0
        state("24 of 24, finished")
        ready(driver, 24)
        logged = metrics_of(run)
        assert len(logged) == 24
        for step in [killed_at - 1, killed_at, killed_at + 1, 24]:
            same_numbers(driver, logged, step)
        Select(driver.find_element(By.ID, "rollout-step")).select_by_value("24")
        time.sleep(0.5)
        assert len(driver.find_elements(By.CSS_SELECTOR, "#rollout-group .member")) >= 8
        clean(driver)
    finally:
        view.kill()
    print(f"the page followed a run killed at step {killed_at} and resumed to 24")
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--hapo", type=pathlib.Path, default=root / "target/debug/hapo")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        out = args.out or work / "screenshots"
        os.makedirs(out, exist_ok=True)
        driver = browser()
        try:
            five_runs(driver, args.hapo, work, out)
            hostile(driver, args.hapo, work, out)
            run = growing(driver, args.hapo, root / "recipes/smoke.toml", work, out)
            real_report(driver, args.hapo, run, work, out)
        finally:
            driver.quit()
    print("ok")


if __name__ == "__main__":
    main()
