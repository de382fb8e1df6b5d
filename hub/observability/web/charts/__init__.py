"""Charts of series as SVG that the server draws; ``chart.js`` adds the cursor.

axes.py     [core] round ticks of values and of time
drawing.py  [core] lines with gaps, bands, and places of marks as parts of SVG
charts.py   [core] the charts of a page: panels of its objects, legend, summary, numbers
"""
