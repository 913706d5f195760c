"""Files as the kernel has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.edge.sources.machines.kernel_sensors import KernelSensorsConfig, measured
from tests.edge.sources.cage import caged

FILES = {
    "class/hwmon/hwmon0/name": "coretemp\n",
    "class/hwmon/hwmon0/temp1_input": "45500\n",
    "class/hwmon/hwmon0/temp1_label": "Package id 0\n",
    "class/hwmon/hwmon0/fan1_input": "1200\n",
    "class/hwmon/hwmon0/temp1_max": "100000\n",
    "class/hwmon/hwmon1/name": "ina219\n",
    "class/hwmon/hwmon1/in1_input": "5012\n",
    "class/hwmon/hwmon1/power1_input": "2500000\n",
    "class/hwmon/hwmon2/name": "ina219\n",
    "class/hwmon/hwmon2/in1_input": "3300\n",
    "bus/iio/devices/iio:device0/name": "bme280\n",
    "bus/iio/devices/iio:device0/in_temp_input": "21560\n",
    "bus/iio/devices/iio:device0/in_humidityrelative_input": "48300\n",
    "bus/iio/devices/iio:device0/in_pressure_input": "101.325\n",
    "bus/iio/devices/iio:device1/name": "ads1015\n",
    "bus/iio/devices/iio:device1/in_voltage0_raw": "400\n",
    "bus/iio/devices/iio:device1/in_voltage1_raw": "200\n",
    "bus/iio/devices/iio:device1/in_voltage0_scale": "2.0\n",
    "bus/iio/devices/iio:device1/in_voltage_scale": "3.0\n",
    "bus/w1/devices/28-0316a2794a1f/temperature": "21812\n",
    "bus/w1/devices/28-00000a/w1_slave": "50 05 4b : crc=1c YES\n50 05 4b t=85000\n",
    "bus/w1/devices/28-00000b/w1_slave": "50 05 4b : crc=1c NO\n50 05 4b t=85000\n",
    "bus/w1/devices/w1_bus_master1/name": "w1_bus_master1\n",
}


@pytest.fixture
def sys_tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "sys" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "sys"


def test_each_sensor_has_its_name_and_its_unit(sys_tree: Path) -> None:
    values, units = measured(sys_tree)
    assert values == {
        "coretemp_Package_id_0": 45.5,
        "coretemp_fan1": 1200.0,
        "ina219_in1": 5.012,
        "ina219_power1": 2.5,
        "ina219_in1_2": 3.3,
        "bme280_temp": 21.56,
        "bme280_humidityrelative": 48.3,
        "bme280_pressure": 101.325,
        "ads1015_voltage0": 0.8,
        "ads1015_voltage1": 0.6,
        "w1_28_0316a2794a1f": 21.812,
        "w1_28_00000a": 85.0,
        "w1_28_00000b": None,
    }
    known = {"coretemp_fan1": "rpm", "ina219_power1": "W", "bme280_humidityrelative": "%"}
    assert known.items() <= units.items()
    assert (units["w1_28_00000a"], units["ads1015_voltage0"]) == ("°C", "V")
    assert units.keys() == values.keys()
    assert set(measured(sys_tree, "w1_.*")[0]) == {
        "w1_28_0316a2794a1f", "w1_28_00000a", "w1_28_00000b",
    }  # fmt: skip


async def test_a_sensor_that_is_pulled_out_is_missed_alone_and_one_plugged_in_is_found(
    sys_tree: Path, tmp_path: Path
) -> None:
    config = KernelSensorsConfig.checked(
        {"type": "kernel_sensors", "stream": "s", "sys": str(sys_tree), "interval_s": 0.1}
    )
    async with caged(tmp_path / "log", config) as one:
        await one.until(lambda: one.column("bme280_temp"), "a reading")
        (sys_tree / "class/hwmon/hwmon0/temp1_input").unlink()
        (sys_tree / "class/hwmon/hwmon0/temp2_input").write_text("50000")
        await one.until(lambda: 50.0 in one.column("coretemp_temp2"), "the new one")
        assert one.column("coretemp_Package_id_0")[0] == 45.5
        assert one.column("bme280_temp")[-1] == 21.56


async def test_a_machine_without_sensors_is_said(tmp_path: Path) -> None:
    config = KernelSensorsConfig.checked(
        {"type": "kernel_sensors", "stream": "s", "sys": str(tmp_path / "none")}
    )
    async with caged(tmp_path / "log", config) as one:
        await one.failed("no sensor")
