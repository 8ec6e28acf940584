"""Convert boards to Grafana's JSON with its SDK (extra ``monitoring``)."""

from typing import Any

from grafana_foundation_sdk.builders import common, heatmap, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from lab.dashboards.board import Board, Panel, Shape, Variable
from lab.dashboards.promql import CLUSTER, CLUSTER_LABEL, COORDINATOR_LABEL, named, series
from serve_app import metrics

_SOURCE = models.DataSourceRef(type_val="prometheus", uid="$datasource")
_HEIGHT = {Shape.NUMBER: 4}
_TAG = "outrider"
_ASKED = {  # queries that list a variable's values
    Variable.CLUSTER: (named(metrics.VERIFIER_READY), CLUSTER_LABEL),
    Variable.COORDINATOR: (series(metrics.VERIFIER_READY, CLUSTER), COORDINATOR_LABEL),
    Variable.CLASS: (series(metrics.QUEUED_RESPONSES, CLUSTER), "slo_class"),
    Variable.GROUP: (series(metrics.DRAFTERS, CLUSTER), "group"),
}


def as_json(board: Board) -> str:
    """The dashboard in the form that Grafana provisions."""
    made = (
        build.Dashboard(board.title)
        .uid(f"outrider-{board.name}")
        .description(board.text)
        .tags([_TAG])
        .time("now-30m", "now")
        .refresh("10s")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(build.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .link(
            build.DashboardLink("Outrider")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .include_vars(include_vars=True)
            .keep_time(keep_time=True)
        )
    )
    for variable in board.variables:
        made.with_variable(_variable(variable))
    for row in board.rows:
        made.with_row(build.Row(row.title))
        for panel in row.panels:
            made.with_panel(_panel(panel))
    dashboard = made.build()
    for number, placed in enumerate(dashboard.panels or (), start=1):
        placed.id_val = number
    return JSONEncoder(sort_keys=True, indent=1).encode(dashboard) + "\n"


def _variable(variable: Variable) -> build.QueryVariable:
    asked, label = _ASKED[variable]
    return (
        build.QueryVariable(variable.value)
        .label(variable.value.capitalize())
        .datasource(_SOURCE)
        .query(f"label_values({asked}, {label})")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".*")  # also matches series without the label
        .current(models.VariableOption(text="All", value="$__all"))
    )


def _panel(panel: Panel) -> Any:
    made = _shaped(panel)
    made.title(panel.title).description(panel.text).datasource(_SOURCE).unit(panel.unit)
    made.span(panel.width).height(_HEIGHT.get(panel.shape, 8))
    if panel.to is not None:
        link = build.DashboardLink(f"More: {panel.to}").type(models.DashboardLinkType.LINK)
        made.links([link.url(f"/d/outrider-{panel.to}?${{__url_time_range}}&${{__all_variables}}")])
    if panel.shape is Shape.NUMBER:
        made.mappings([_NO_TRAFFIC])  # shares of nothing, which would show in the lowest threshold's colour
    if panel.warn is not None and panel.alarm is not None:
        made.thresholds(_thresholds(panel.warn, panel.alarm))
    for number, query in enumerate(panel.queries):
        target = Dataquery().expr(query.expr).legend_format(query.legend).ref_id(chr(ord("A") + number))
        if panel.shape is Shape.HEAT:
            target.format(PromQueryFormat.HEATMAP)
        elif panel.shape is Shape.TABLE:
            target.format(PromQueryFormat.TABLE).instant()
        made.with_target(target.datasource(_SOURCE))
    return made


def _shaped(panel: Panel) -> Any:
    match panel.shape:
        case Shape.NUMBER:
            last = common.ReduceDataOptions().calcs(["lastNotNull"])
            made: Any = stat.Panel().reduce_options(last).graph_mode(common_models.BigValueGraphMode.AREA)
            return made if panel.warn is not None else made.color_mode(common_models.BigValueColorMode.NONE)
        case Shape.HEAT:
            return heatmap.Panel()
        case Shape.TABLE:
            return _table(panel)
        case Shape.LINES | Shape.STACK:
            legend = common.VizLegendOptions().show_legend(show_legend=True).placement(_BOTTOM).display_mode(_AS_LIST)
            lines = timeseries.Panel().legend(legend).line_width(1).show_points(common_models.VisibilityMode.NEVER)
            lines.tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
            if panel.warn is not None:
                dashed = common_models.GraphThresholdsStyleMode.DASHED
                lines.thresholds_style(common.GraphThresholdsStyleConfig().mode(dashed))
            if panel.shape is Shape.STACK:
                lines.fill_opacity(40).stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
            return lines


def _table(panel: Panel) -> Any:
    """One row for each value of the queries' common label."""
    made = table.Panel()
    columns = {f"Value #{chr(ord('A') + number)}": query for number, query in enumerate(panel.queries)}
    for title, query in ((query.legend, query) for query in columns.values()):
        made.override_by_name(title, [models.DynamicConfigValue("unit", query.unit)])
    joined = {"byField": panel.rows_by, "mode": "outer"}
    shown = {"include": {"pattern": f"^({panel.rows_by}|Value.*)$"}}
    named = {"renameByName": {value: query.legend for value, query in columns.items()}}
    for name, options in (("joinByField", joined), ("filterFieldsByName", shown), ("organize", named)):
        made.with_transformation(models.DataTransformerConfig(id_val=name, options=options))
    return made


_NO_TRAFFIC = models.SpecialValueMap(
    models.DashboardSpecialValueMapOptions(
        models.SpecialValueMatch.NULL_AND_NAN, models.ValueMappingResult("no traffic", "text")
    )
)
_BOTTOM = common_models.LegendPlacement.BOTTOM
_AS_LIST = common_models.LegendDisplayMode.LIST


def _thresholds(warn: float, alarm: float) -> build.ThresholdsConfig:
    """Green, yellow, red; reversed if lower is worse."""
    colours = [(None, "green"), (warn, "yellow"), (alarm, "red")]
    if warn > alarm:
        colours = [(None, "red"), (alarm, "yellow"), (warn, "green")]
    elif warn == alarm:
        colours = [(None, "green"), (alarm, "red")]
    steps = [models.Threshold(value=value, color=colour) for value, colour in colours]
    return build.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)
